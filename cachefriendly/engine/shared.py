"""Engines that several adapters share: equal sources and options give the same open engine."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    @property
    def closed(self) -> bool: ...


E = TypeVar("E", bound=Closable)


class SharedEngines(Generic[E]):
    """One open engine for a key, as long as somebody uses it. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engines: weakref.WeakValueDictionary[Hashable, E] = weakref.WeakValueDictionary()

    def get(self, key: Hashable, make: Callable[[], E]) -> E:
        """The open engine of a key; ``make`` is called when there is none, or a closed one."""
        with self._lock:
            engine = self._engines.get(key)
            if engine is None or engine.closed:
                engine = self._engines[key] = make()
            return engine

"""A mapping that holds what was used lately: bounded, whoever forgets to clean up."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["BoundedMap"]

K = TypeVar("K")
V = TypeVar("V")


class BoundedMap(Generic[K, V]):
    """At most ``size`` entries; the one that was used longest ago goes first. Thread safe.

    Attributes:
        forgot: entries had to go, so that a key that is missing may have been here.
    """

    def __init__(self, size: int) -> None:
        self.forgot = False
        self._size = size
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """The value of a key, which is used by that; None when it is not here."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: K, value: V) -> V | None:
        """Set an entry; the value that had to go for it, if one had to."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            if len(self._entries) <= self._size:
                return None
            self.forgot = True
            return self._entries.popitem(last=False)[1]

    def pop(self, key: K) -> V | None:
        """Take an entry out; None when it is not here."""
        with self._lock:
            return self._entries.pop(key, None)

    def drop(self, unwanted: Callable[[K, V], bool]) -> None:
        """Take every entry out that is unwanted."""
        with self._lock:
            for key in [key for key, value in self._entries.items() if unwanted(key, value)]:
                del self._entries[key]

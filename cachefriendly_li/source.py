"""An engine that is opened when it is first needed, once, and shared by all copies of an LLM."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cachefriendly.checkpoint import check_engine

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine

__all__ = ["EngineSource"]


class EngineSource:
    """Opens the engine when it is first needed, once. Copies are the same source.

    An LLM is copied by LlamaIndex (`deepcopy`, `model_copy`); a copy must not load again.
    """

    def __init__(self, opener: Callable[[], Engine]) -> None:
        self._opener = opener
        self._lock = threading.Lock()
        self._engine: Engine | None = None

    @classmethod
    def given(cls, engine: Any) -> EngineSource:
        """A source of an engine that the caller made."""
        checked = check_engine(engine)
        source = cls(lambda: checked)
        source.get()
        return source

    @property
    def opened(self) -> Engine | None:
        return self._engine

    def get(self) -> Engine:
        with self._lock:
            if self._engine is None:
                self._engine = self._opener()
            return self._engine

    def __copy__(self) -> EngineSource:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> EngineSource:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("an engine stays in its process; pickle the LLM's settings instead")

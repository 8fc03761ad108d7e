"""An engine that is opened when it is first needed, once, and shared by all copies of an LLM."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cachefriendly.checkpoint import Checkpoint, check_engine

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine

__all__ = ["EngineSource"]


class EngineSource:
    """Opens the engine when it is first needed, once. Copies are the same source.

    An LLM is copied by LlamaIndex (`deepcopy`, `model_copy`); a copy must not load again.
    """

    def __init__(self, opener: Callable[[], Engine], made: tuple[Any, ...] | None = None) -> None:
        """``made``: what an equal source is made of in another process, and by what first."""
        self._opener = opener
        self._made = made
        self._lock = threading.Lock()
        self._engine: Engine | None = None

    @classmethod
    def given(cls, engine: Any) -> EngineSource:
        """A source of an engine that the caller made."""
        checked = check_engine(engine)
        source = cls(lambda: checked, (EngineSource.given, checked))
        source.get()
        return source

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> EngineSource:
        return cls(checkpoint.open, (EngineSource.of, checkpoint))

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
        """By names. Refused where weights would be copied."""
        if self._made is None:
            raise TypeError("this engine stays in its process; pickle what it was opened from")
        maker, *parts = self._made
        for part in parts:
            if isinstance(part, Checkpoint):
                _check_named(part)
            else:
                part.__reduce__()  # an engine over loaded objects refuses
        return maker, tuple(parts)


def _check_named(checkpoint: Checkpoint) -> None:
    for name in ("model", "tokenizer"):
        if not isinstance(getattr(checkpoint, name), str | None):
            raise TypeError(
                f"an LLM with {name}= (a loaded object) cannot be pickled; give model_name= and "
                "tokenizer_name= (paths or hub ids), or build it in the process that uses it"
            )

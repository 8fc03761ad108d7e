"""One running row of the fallback runner: a model's own cache, continued on forks of it."""

from __future__ import annotations

from typing import Any

from cachefriendly.kv.cache_state import cropped, forked, stateless, storage_bytes
from cachefriendly.kv.extent import Ledger

__all__ = ["FallbackSequence"]


class FallbackSequence:
    """What a model returned behind ``length`` tokens; None before the first forward.

    A forward works on `fork_state` and `commit` takes its result: one that raises half way leaves
    this sequence as it was. Not thread safe: the engine thread owns it.
    """

    def __init__(self, ledger: Ledger, state: Any = None, length: int = 0) -> None:
        self.state = state
        self.length = length
        self._ledger = ledger
        self._bytes = 0
        self._count()

    def fork_state(self) -> Any:
        """The state for a forward to continue, free to be written."""
        return forked(self.state)

    def commit(self, state: Any, tokens: int) -> None:
        """Take over what a forward of ``tokens`` more tokens left."""
        self.state = state
        self.length += tokens
        self._count()

    def fork(self) -> FallbackSequence:
        """A second sequence over the same tokens."""
        return FallbackSequence(self._ledger, forked(self.state), self.length)

    def can_crop(self, length: int) -> bool:
        """Recurrent, convolutional and windowed states cannot go back; full attention can."""
        if length in {0, self.length}:
            return True
        return 0 < length < self.length and stateless(self.state, self.length)

    def crop(self, length: int) -> None:
        """Keep the first ``length`` tokens.

        Raises:
            ValueError: the state cannot go back there exactly; see `can_crop`.
        """
        if not self.can_crop(length):
            raise ValueError(f"a state behind {self.length} tokens cannot be cut to {length}")
        if length != self.length:
            self.state = cropped(self.state, self.length, length) if length else None
            self.length = length
            self._count()

    def close(self) -> None:
        """Give up the state. Safe to repeat."""
        self.state = None
        self.length = 0
        self._count()

    def _count(self) -> None:
        bytes_now = storage_bytes(self.state)
        self._ledger.bytes += bytes_now - self._bytes
        self._bytes = bytes_now

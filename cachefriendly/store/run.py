"""What a prefix tree node of the fallback runner holds: its tokens' tensors, and a state."""

from __future__ import annotations

from typing import Any

from cachefriendly.kv.cache_state import Parts, cut, storage_bytes
from cachefriendly.kv.extent import Ledger

__all__ = ["Run", "Snapshot"]


class Snapshot:
    """The part of a state that does not grow by token, as it was behind one exact length.

    Never written: sequences start on copies of it. Counted while somebody holds it.
    """

    __slots__ = ("_holders", "_ledger", "_nbytes", "bare")

    def __init__(self, bare: Any, ledger: Ledger) -> None:
        self.bare = bare
        self._ledger = ledger
        self._holders = 0
        self._nbytes = storage_bytes(bare)

    def hold(self) -> Snapshot:
        if self._holders == 0:
            self._ledger.bytes += self._nbytes
        self._holders += 1
        return self

    def drop(self) -> None:
        self._holders -= 1
        if self._holders == 0:
            self._ledger.bytes -= self._nbytes
            self.bare = None


class Run:
    """The growing tensors of a run of tokens, and perhaps the snapshot behind its last token.

    What `take` gives owns its memory, so that bytes are freed with the node that holds them.
    """

    __slots__ = ("_ledger", "_nbytes", "parts", "snapshot", "tokens", "used")

    def __init__(
        self, parts: Parts, tokens: int, snapshot: Snapshot | None, ledger: Ledger, *, own: bool
    ) -> None:
        """``own``: the tensors exist for this run alone and are counted with it."""
        self.parts = parts
        self.tokens = tokens
        self.snapshot = snapshot.hold() if snapshot is not None else None
        self.used = 0
        self._ledger = ledger
        self._nbytes = sum(storage_bytes(tensor) for tensor in parts.values()) if own else 0
        ledger.bytes += self._nbytes

    def take(self, start: int, stop: int) -> Run:
        """Tokens [start, stop) copied; the snapshot goes with the last token."""
        parts = {
            key: tensor.contiguous().clone() for key, tensor in cut(self.parts, start, stop).items()
        }
        snapshot = self.snapshot if stop == self.tokens else None
        taken = Run(parts, stop - start, snapshot, self._ledger, own=True)
        taken.used = self.used
        return taken

    def put(self, snapshot: Snapshot) -> None:
        """Set the snapshot behind the last token."""
        self.drop_snapshot()
        self.snapshot = snapshot.hold()

    def drop_snapshot(self) -> None:
        if self.snapshot is not None:
            self.snapshot.drop()
            self.snapshot = None

    def release(self) -> None:
        self.drop_snapshot()
        self._ledger.bytes -= self._nbytes
        self._nbytes = 0
        self.parts = {}

"""LangGraph channels that store what a step changed: linear bytes, and no history cut unnoticed.

A ``DeltaChannel`` keeps a thread's value as the writes of its checkpoints and a full copy now and
then. Whoever deletes some of those checkpoints, or copies only the newest, makes it start empty
without a word (LangGraph warns of it at `BaseCheckpointSaver.prune` and ``copy_thread``). Here
every thread begins with a full copy: a history that leads to none was cut, and is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Self, TypeAlias

from cachefriendly.errors import StateError
from cachefriendly_lc.compat import DIFFS_ARE_WHOLE, DeltaChannel, PrivateStateAttr

__all__ = ["DiffChannel", "SpareChannel", "TurnsChannel", "merge_turns"]

log = logging.getLogger(__name__)

_DISTANCE = 100
"""Smallest distance of full copies, in updates; LangGraph's own default."""


class DiffChannel(DeltaChannel[Any]):
    """A ``DeltaChannel`` whose full copies are further apart the longer its value is.

    At a fixed distance the copies' bytes grow with the square of a thread's length. Here the next
    one is due after as many updates as the last one has items, so that all copies together take
    about twice the bytes of the last.

    Args:
        reducer: ``(value, [write, ...]) -> value``; see ``DeltaChannel``.
        typ: the value's type; taken from the annotation.
        snapshot_frequency: the smallest distance, in updates.
    """

    __slots__ = ("_copied", "_distance", "_unsaved")

    def __init__(
        self,
        reducer: Callable[[Any, Sequence[Any]], Any],
        typ: type[Any] | None = None,
        *,
        snapshot_frequency: int = _DISTANCE,
    ) -> None:
        super().__init__(reducer, typ, snapshot_frequency=snapshot_frequency)
        self._copied = 0  # items of the full copy that this value was read from
        self._unsaved: int | None = 0  # updates since an empty start; None when read from a copy

    @property
    def snapshot_frequency(self) -> int:
        """Updates since the last full copy that make the next one due.

        LangGraph compares its own count with this. Every copy sets the count back: as long as it
        equals the number of all updates there was no copy, and the first one is due.
        """
        if self._unsaved is None:
            return max(self._distance, self._copied)
        return min(self._distance, self._unsaved) or self._distance

    @snapshot_frequency.setter
    def snapshot_frequency(self, updates: int) -> None:
        self._distance = updates

    def __eq__(self, other: object) -> bool:
        """Whether both describe the same channel, whatever they hold."""
        return (
            isinstance(other, DiffChannel)
            and type(other) is type(self)
            and self._distance == other._distance
            and self.reducer is other.reducer
        )

    __hash__ = None  # type: ignore[assignment]  # mutable

    def copy(self) -> Self:
        new = super().copy()
        new._distance, new._copied, new._unsaved = self._distance, self._copied, self._unsaved
        return new

    def from_checkpoint(self, checkpoint: Any) -> Self:
        new = super().from_checkpoint(checkpoint)
        new._distance = self._distance
        nothing = self.checkpoint()  # LangGraph's marker for a channel that stores no value
        if checkpoint is not nothing and checkpoint is not None:
            new._copied, new._unsaved = len(new.value), None
        return new

    def update(self, values: Sequence[Any]) -> bool:
        changed = super().update(values)
        if changed and self._unsaved is not None:
            self._unsaved += 1
        return changed

    def replay_writes(self, writes: Sequence[Any]) -> None:
        """Apply the writes that follow the full copy.

        Raises:
            StateError: there is no full copy to apply them to.
        """
        if self._unsaved is not None and (writes or DIFFS_ARE_WHOLE):
            self._found_cut(len(writes))
        super().replay_writes(writes)

    def _found_cut(self, left: int) -> None:
        raise StateError(
            f"channel {self.key!r}: checkpoints that this thread's state is built from are missing "
            f"({left} writes are left, without what they follow). They were deleted, not copied "
            "along with the newest one, or written with another channel class. Restore them, or "
            "begin a new thread"
        )


class SpareChannel(DiffChannel):
    """For values that can be done without: of a cut history it takes what is left."""

    __slots__ = ()

    def _found_cut(self, left: int) -> None:
        log.info("channel %r: its history was cut, %d writes are left", self.key, left)


def merge_turns(kept: Mapping[str, str], writes: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Exported turns by handle. A handle names its content, so that the order means nothing."""
    merged = dict(kept)
    for write in writes:
        merged.update(write)
    return merged


TurnsChannel: TypeAlias = Annotated[dict[str, str], SpareChannel(merge_turns), PrivateStateAttr]
"""A private channel of exported turns: ``turns: NotRequired[TurnsChannel]`` in a state schema."""

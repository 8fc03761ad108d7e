"""Extents: fixed-size runs of keys and values, appended to by one writer, never reallocated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from cachefriendly.kv.sequence import Sequence

__all__ = ["Extent", "Ledger", "Piece", "next_capacity"]

SMALLEST_EXTENT = 64
LARGEST_EXTENT = 1024


class Ledger:
    """Physical bytes of all live extents of one engine: a shared extent counts once."""

    def __init__(self) -> None:
        self.bytes = 0
        self.extents = 0


class Extent:
    """Room for ``capacity`` tokens: per slot one key tensor [kv_heads, capacity, k_dim] and one
    value tensor [kv_heads, capacity, v_dim], allocated when the slot is first written.

    Two marks, ``frozen <= written``: tokens below ``written`` exist; tokens below ``frozen`` were
    given to another holder (tree node, fork) and never change again. At most one sequence is the
    ``writer``. An extent lives while somebody holds it; `hold` and `drop` are the only way.
    """

    __slots__ = (
        "_ledger",
        "_slots",
        "capacity",
        "frozen",
        "holders",
        "nbytes",
        "writer",
        "written",
    )

    def __init__(self, capacity: int, ledger: Ledger) -> None:
        self.capacity = capacity
        self.written = 0
        self.frozen = 0
        self.writer: Sequence | None = None
        self.holders = 0
        self.nbytes = 0
        self._ledger = ledger
        self._slots: dict[int, tuple[Tensor, Tensor]] = {}
        ledger.extents += 1

    def hold(self) -> None:
        self.holders += 1

    def drop(self) -> None:
        """Give up one hold; the tensors are freed with the last."""
        self.holders -= 1
        if self.holders == 0:
            self._slots.clear()
            self._ledger.bytes -= self.nbytes
            self._ledger.extents -= 1
            self.nbytes = 0

    def write(self, slot: int, offset: int, key: Tensor, value: Tensor) -> None:
        """Store key [kv_heads, n, k_dim] and value [kv_heads, n, v_dim] at ``offset``."""
        room = self._slots.get(slot)
        if room is None:
            room = self._allocate(slot, key, value)
        n = key.shape[1]
        room[0].narrow(1, offset, n).copy_(key)
        room[1].narrow(1, offset, n).copy_(value)

    def read(self, slot: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Views of tokens [start, stop): [1, kv_heads, n, k_dim] and [1, kv_heads, n, v_dim]."""
        key, value = self._slots[slot]
        n = stop - start
        return key.narrow(1, start, n).unsqueeze(0), value.narrow(1, start, n).unsqueeze(0)

    def slots(self) -> list[int]:
        return list(self._slots)

    def _allocate(self, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        room = (
            torch.empty(
                key.shape[0], self.capacity, key.shape[2], dtype=key.dtype, device=key.device
            ),
            torch.empty(
                value.shape[0],
                self.capacity,
                value.shape[2],
                dtype=value.dtype,
                device=value.device,
            ),
        )
        self._slots[slot] = room
        grown = sum(t.numel() * t.element_size() for t in room)
        self.nbytes += grown
        self._ledger.bytes += grown
        return room


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens [start, stop) of an extent."""

    extent: Extent
    start: int
    stop: int

    @property
    def tokens(self) -> int:
        return self.stop - self.start

    def cut(self, start: int, stop: int) -> Piece:
        """The part [start, stop) of this piece, counted from its own beginning."""
        return Piece(self.extent, self.start + start, self.start + stop)


def next_capacity(chained: int, needed: int) -> int:
    """Capacity of the extent that follows ``chained`` tokens of the same writer.

    Doubling keeps both the number of pieces and the slack small: 64, 64, 128, 256 ... 1,024.
    A prefill that is known to need more gets it at once.
    """
    wanted = max(SMALLEST_EXTENT, chained, min(needed, LARGEST_EXTENT))
    power = 1 << (wanted - 1).bit_length()
    return min(power, LARGEST_EXTENT)

"""Sequences: the tokens of one running conversation as pieces of shared extents.

Token intervals, for a sequence of length L that is about to forward n tokens::

    [0 ......................... L) [L ............. L + n)
     pieces, readable by attention   spans of the reservation, written by attention
                                     and counted only when `commit` is called
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from cachefriendly.kv.extent import Extent, Ledger, Piece, next_capacity

__all__ = ["Segment", "Sequence", "Span"]


@dataclass(frozen=True, slots=True)
class Span:
    """Where tokens [row_start, row_start + tokens) of a row go: ``extent`` from ``offset``."""

    extent: Extent
    offset: int
    row_start: int
    tokens: int


class Segment:
    """Pieces that somebody holds: a tree node's value, or what a lease hands out.

    Owns one hold per piece and freezes what it covers; `release` gives the holds back.
    """

    __slots__ = ("pieces",)

    def __init__(self, pieces: Iterable[Piece]) -> None:
        self.pieces = tuple(pieces)
        for piece in self.pieces:
            piece.extent.hold()
            piece.extent.frozen = max(piece.extent.frozen, piece.stop)

    @property
    def tokens(self) -> int:
        return sum(piece.tokens for piece in self.pieces)

    def take(self, start: int, stop: int) -> Segment:
        """A new segment over tokens [start, stop) of this one."""
        return Segment(_cut(self.pieces, start, stop))

    def release(self) -> None:
        for piece in self.pieces:
            piece.extent.drop()
        self.pieces = ()

    def kept_share(self) -> float:
        """Smallest share of an extent that this segment keeps alive on its own (1.0 when none)."""
        shares = [p.tokens / p.extent.capacity for p in self.pieces if p.extent.holders == 1]
        return min(shares, default=1.0)

    def compacted(self, ledger: Ledger) -> Segment:
        """The same tokens copied into an extent of their own, so that a large one can be freed."""
        return Segment(_copy(self.pieces, ledger))


class Sequence:
    """One running row's keys and values. Not thread safe: the engine thread owns it."""

    def __init__(self, ledger: Ledger, pieces: Iterable[Piece] = ()) -> None:
        self._ledger = ledger
        self._pieces: list[Piece] = []
        self._reserved: list[Span] = []
        self.length = 0
        for piece in pieces:
            piece.extent.hold()
            piece.extent.frozen = max(piece.extent.frozen, piece.stop)
            self._pieces.append(piece)
            self.length += piece.tokens

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(self._pieces)

    def fork(self) -> Sequence:
        """A second sequence over the same tokens; nothing is copied."""
        return Sequence(self._ledger, self._pieces)

    def reserve(self, tokens: int) -> list[Span]:
        """Find room for ``tokens`` more; nothing counts before `commit`."""
        self.abort()
        placed = 0
        tail = self._pieces[-1] if self._pieces else None
        if tail is not None and self._may_append(tail):
            placed = min(tokens, tail.extent.capacity - tail.stop)
            if placed:
                self._reserved.append(Span(tail.extent, tail.stop, 0, placed))
        chained = self._own_tail()
        while placed < tokens:
            extent = Extent(next_capacity(chained, tokens - placed), self._ledger)
            extent.hold()
            extent.writer = self
            room = min(tokens - placed, extent.capacity)
            self._reserved.append(Span(extent, 0, placed, room))
            placed += room
            chained += extent.capacity
        return self._reserved

    def commit(self) -> None:
        """Count the reserved tokens; they were written in every slot."""
        for span in self._reserved:
            extent = span.extent
            extent.written = span.offset + span.tokens
            last = self._pieces[-1] if self._pieces else None
            if last is not None and last.extent is extent:
                self._pieces[-1] = Piece(extent, last.start, extent.written)
            else:
                self._pieces.append(Piece(extent, 0, extent.written))
            self.length += span.tokens
        self._reserved = []

    def abort(self) -> None:
        """Forget a reservation; extents opened for it are freed."""
        for span in self._reserved:
            if span.offset == 0 and not any(p.extent is span.extent for p in self._pieces):
                span.extent.writer = None
                span.extent.drop()
        self._reserved = []

    def can_crop(self, length: int) -> bool:
        """Keys and values stand for their own token: any prefix of them is whole."""
        return 0 <= length <= self.length

    def crop(self, length: int) -> None:
        """Keep the first ``length`` tokens. Only this sequence's end moves; shared tokens stay."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot crop {self.length} tokens to {length}")
        self.abort()
        kept = _cut(self._pieces, 0, length)
        for piece in self._pieces[len(kept) :]:
            self._leave(piece.extent)
        self._pieces = kept
        self.length = length
        if kept:
            self._cut_back(kept[-1])

    def segment(self, start: int, stop: int) -> Segment:
        """Tokens [start, stop) for another holder; they are frozen from now on."""
        return Segment(_cut(self._pieces, start, stop))

    def close(self) -> None:
        """Give up every hold and the writer role."""
        self.abort()
        for piece in self._pieces:
            self._leave(piece.extent)
        self._pieces = []
        self.length = 0

    def _leave(self, extent: Extent) -> None:
        if extent.writer is self:
            extent.writer = None
        extent.drop()

    def _may_append(self, tail: Piece) -> bool:
        """In place only at the extent's very end and only as its one writer."""
        extent = tail.extent
        if tail.stop != extent.written or tail.stop == extent.capacity:
            return False
        if extent.writer is None:
            extent.writer = self
        return extent.writer is self

    def _cut_back(self, tail: Piece) -> None:
        """Reuse cropped room when nobody else was given it; otherwise leave the writer role."""
        extent = tail.extent
        if extent.writer is not self or tail.stop == extent.written:
            return
        if extent.frozen <= tail.stop:
            extent.written = tail.stop
        else:
            extent.writer = None

    def _own_tail(self) -> int:
        """Capacity of the extents at the end that this sequence writes, or wrote whole."""
        total = 0
        for piece in reversed(self._pieces):
            if piece.start != 0 or piece.stop != piece.extent.written:
                break
            total += piece.extent.capacity
        return total


def _cut(pieces: Iterable[Piece], start: int, stop: int) -> list[Piece]:
    """The pieces of tokens [start, stop), counted over all of ``pieces``."""
    kept: list[Piece] = []
    position = 0
    for piece in pieces:
        low, high = max(start, position), min(stop, position + piece.tokens)
        if low < high:
            kept.append(piece.cut(low - position, high - position))
        position += piece.tokens
    return kept


def _copy(pieces: tuple[Piece, ...], ledger: Ledger) -> list[Piece]:
    total = sum(piece.tokens for piece in pieces)
    extent = Extent(total, ledger)
    try:
        _fill(extent, pieces)
    except BaseException:  # there may be no memory for it
        extent.hold()
        extent.drop()
        raise
    extent.written = total
    return [Piece(extent, 0, total)]


def _fill(extent: Extent, pieces: Iterable[Piece]) -> None:
    offset = 0
    for piece in pieces:
        for slot in piece.extent.slots():
            key, value = piece.extent.read(slot, piece.start, piece.stop)
            extent.write(slot, offset, _headed(key), _headed(value))
        offset += piece.tokens


def _headed(tensor: Tensor) -> Tensor:
    return tensor.squeeze(0)

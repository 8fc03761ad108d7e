"""Sequences over shared extents, driven against plain lists of ids."""

from __future__ import annotations

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cachefriendly.kv.extent import Ledger, next_capacity
from cachefriendly.kv.sequence import Segment, Sequence

BYTES_PER_TOKEN = 2 * 4  # one float32 key and one float32 value in one slot


def append(sequence: Sequence, ids: list[int]) -> None:
    """Write ids as keys and their negatives as values, the way attention does."""
    for span in sequence.reserve(len(ids)):
        part = torch.tensor(ids[span.row_start : span.row_start + span.tokens], dtype=torch.float32)
        span.extent.write(0, span.offset, part[None, :, None], -part[None, :, None])
    sequence.commit()


def stored(holder: Sequence | Segment) -> list[int]:
    ids: list[int] = []
    for piece in holder.pieces:
        key, value = piece.extent.read(0, piece.start, piece.stop)
        assert torch.equal(key, -value)
        ids += key.flatten().int().tolist()
    return ids


class Sequences(RuleBasedStateMachine):
    """Append, fork, crop, hand out, close: every sequence always reads as its own list."""

    @initialize()
    def start(self) -> None:
        self.ledger = Ledger()
        self.sequences: list[tuple[Sequence, list[int]]] = [(Sequence(self.ledger), [])]
        self.segments: list[tuple[Segment, list[int]]] = []
        self.next_id = 1

    def pick(self, index: int) -> tuple[Sequence, list[int]]:
        return self.sequences[index % len(self.sequences)]

    @rule(index=st.integers(0, 9), n=st.integers(1, 150))
    def appends(self, index: int, n: int) -> None:
        sequence, ids = self.pick(index)
        new = list(range(self.next_id, self.next_id + n))
        self.next_id += n
        append(sequence, new)
        ids += new

    @rule(index=st.integers(0, 9), n=st.integers(1, 70))
    def fails(self, index: int, n: int) -> None:
        sequence, _ = self.pick(index)
        sequence.reserve(n)
        sequence.abort()

    @rule(index=st.integers(0, 9))
    def forks(self, index: int) -> None:
        sequence, ids = self.pick(index)
        self.sequences.append((sequence.fork(), list(ids)))

    @rule(index=st.integers(0, 9), share=st.floats(0, 1))
    def crops(self, index: int, share: float) -> None:
        sequence, ids = self.pick(index)
        length = int(len(ids) * share)
        sequence.crop(length)
        del ids[length:]

    @rule(index=st.integers(0, 9), low=st.floats(0, 1), high=st.floats(0, 1))
    def hands_out(self, index: int, low: float, high: float) -> None:
        sequence, ids = self.pick(index)
        start, stop = sorted((int(len(ids) * low), int(len(ids) * high)))
        self.segments.append((sequence.segment(start, stop), ids[start:stop]))

    @rule(index=st.integers(0, 9))
    def compacts(self, index: int) -> None:
        if self.segments:
            segment, ids = self.segments[index % len(self.segments)]
            if ids:
                self.segments.append((segment.compacted(self.ledger), ids))

    @rule(index=st.integers(0, 9))
    def closes(self, index: int) -> None:
        if len(self.sequences) > 1:
            sequence, _ = self.sequences.pop(index % len(self.sequences))
            sequence.close()

    @invariant()
    def everybody_reads_their_own(self) -> None:
        for sequence, ids in self.sequences:
            assert sequence.length == len(ids)
            assert stored(sequence) == ids
        for segment, ids in self.segments:
            assert stored(segment) == ids

    @invariant()
    def extents_have_one_writer(self) -> None:
        for sequence, _ in self.sequences:
            for piece in sequence.pieces:
                assert piece.stop <= piece.extent.written <= piece.extent.capacity
                assert piece.extent.frozen <= piece.extent.written

    def teardown(self) -> None:
        for sequence, _ in self.sequences:
            sequence.close()
        for segment, _ in self.segments:
            segment.release()
        assert self.ledger.bytes == 0
        assert self.ledger.extents == 0


Sequences.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestSequences = Sequences.TestCase


def test_second_child_of_a_tip_gets_a_new_tail() -> None:
    """Two children appending in place made the first one's logits wrong by 0.38."""
    ledger = Ledger()
    parent = Sequence(ledger)
    append(parent, [1, 2, 3])
    first, second = parent.fork(), parent.fork()
    append(first, [4])
    append(second, [5])
    append(parent, [6])
    assert [stored(s) for s in (first, second, parent)] == [
        [1, 2, 3, 4],
        [1, 2, 3, 5],
        [1, 2, 3, 6],
    ]


def test_reopened_tip_is_appended_in_place() -> None:
    """A conversation that goes on uses the room it has: no new extent per turn."""
    ledger = Ledger()
    first = Sequence(ledger)
    append(first, list(range(40)))
    segment = first.segment(0, 40)
    first.close()
    again = Sequence(ledger, segment.pieces)
    append(again, [99])
    assert ledger.extents == 1
    assert stored(again) == [*range(40), 99]


def test_crop_reuses_room_nobody_else_was_given() -> None:
    ledger = Ledger()
    sequence = Sequence(ledger)
    append(sequence, list(range(30)))
    sequence.crop(10)
    append(sequence, [7] * 20)
    assert ledger.extents == 1
    assert stored(sequence) == [*range(10), *[7] * 20]


def test_crop_below_shared_tokens_leaves_them_alone() -> None:
    """An owner that cropped and appended made a tree node wrong by 0.76."""
    ledger = Ledger()
    sequence = Sequence(ledger)
    append(sequence, list(range(20)))
    node = sequence.segment(0, 20)
    sequence.crop(10)
    append(sequence, [7] * 6)
    assert stored(node) == list(range(20))
    assert stored(sequence) == [*range(10), *[7] * 6]


def test_capacities_double_and_stay_bounded() -> None:
    chained, seen = 0, []
    while chained < 5000:
        seen.append(next_capacity(chained, 1))
        chained += seen[-1]
    assert seen[:6] == [64, 64, 128, 256, 512, 1024]
    assert max(seen) == 1024
    assert next_capacity(0, 700) == 1024


def test_bytes_are_counted_physically() -> None:
    ledger = Ledger()
    sequence = Sequence(ledger)
    append(sequence, list(range(64)))
    assert ledger.bytes == 64 * BYTES_PER_TOKEN
    fork = sequence.fork()
    assert ledger.bytes == 64 * BYTES_PER_TOKEN
    sequence.close()
    assert ledger.bytes == 64 * BYTES_PER_TOKEN
    fork.close()
    assert ledger.bytes == 0

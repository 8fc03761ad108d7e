"""Kept states of the fallback runner: exact where they were kept, under a byte budget."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, LinearAttentionLayer

from cachefriendly.config import Sampling
from cachefriendly.kv.fallback_sequence import FallbackSequence
from cachefriendly.rows import GenerateRequest
from cachefriendly.store.run import Run
from cachefriendly.store.snapshots import SnapshotStore

WIDTH = 8
TOKEN = 2 * 4 * WIDTH  # bytes of one token in one full attention layer
STATE = 2 * 4 * 3  # bytes of one recurrent state below: convolution and sum


def append(sequence: FallbackSequence, ids: list[int], *, recurrent: bool = True) -> None:
    """A forward of a model of two layers: one keeps its ids, one a running sum of them."""
    cache: Any = sequence.fork_state()
    if cache is None:
        cache = DynamicCache()
        cache.layers = [DynamicLayer(), *([LinearAttentionLayer()] if recurrent else [])]
    tile = torch.tensor(ids, dtype=torch.float32)[None, None, :, None].expand(1, 1, -1, WIDTH)
    cache.layers[0].update(tile, tile)
    if recurrent:
        layer = cache.layers[1]
        total = summed(cache) + sum(ids)
        layer.update_recurrent_state(torch.full((1, 1, 3), float(total)))
        layer.update_conv_state(torch.full((1, 1, 3), float(ids[-1])))
    sequence.commit(cache, len(ids))


def summed(cache: Any) -> int:
    states = cache.layers[1].recurrent_states
    state = states[0] if isinstance(states, dict) else states
    return 0 if state is None else int(state[0, 0, 0])


def read(sequence: FallbackSequence) -> list[int]:
    if sequence.length == 0:
        return []
    ids: list[int] = sequence.state.layers[0].keys[0, 0, :, 0].int().tolist()
    if len(sequence.state.layers) > 1:
        assert summed(sequence.state) == sum(ids)
    return ids


def run(
    store: SnapshotStore, ids: list[int], space: str = "", *, at: int = 0, recurrent: bool = True
) -> int:
    """Open, forward what is missing, keep at ``at`` and at the end: one call. Reused tokens."""
    opened = store.open(ids, space)
    sequence = opened.sequence
    assert read(sequence) == ids[: opened.reused]
    assert opened.reused <= opened.common
    if opened.reused < at < len(ids):
        append(sequence, ids[sequence.length : at], recurrent=recurrent)
        store.keep(sequence, ids, space)
    append(sequence, ids[sequence.length :], recurrent=recurrent)
    store.keep(sequence, ids, space)
    assert read(sequence) == ids
    sequence.close()
    opened.lease.release()
    return opened.reused


def test_a_conversation_reuses_the_state_behind_it() -> None:
    store = SnapshotStore(1 << 20)
    ids = list(range(100))
    assert run(store, ids) == 0
    assert run(store, [*ids, 7, 8]) == 100


def test_the_same_prompt_needs_a_state_in_front_of_its_end() -> None:
    store = SnapshotStore(1 << 20)
    ids = list(range(100))
    run(store, ids, at=90)
    assert run(store, ids) == 90


def test_a_branch_starts_at_the_last_state_before_it() -> None:
    store = SnapshotStore(1 << 20)
    run(store, list(range(100)), at=40)
    branch = [*range(60), 7, 8]
    opened = store.open(branch)
    assert (opened.reused, opened.common) == (40, 60)
    opened.sequence.close()
    opened.lease.release()
    assert run(store, branch) == 40


def test_full_attention_alone_is_reused_at_any_length() -> None:
    store = SnapshotStore(1 << 20)
    ids = list(range(100))
    run(store, ids, recurrent=False)
    assert run(store, ids, recurrent=False) == 99
    assert run(store, [*range(33), 7, 8], recurrent=False) == 33
    assert store.stats().states == 0


def test_a_snapshot_per_turn_costs_its_tokens_and_one_state() -> None:
    """CASES 23."""
    store = SnapshotStore(1 << 20)
    ids: list[int] = []
    for turn in range(10):
        ids += range(100 * turn, 100 * turn + 30)
        run(store, ids)
    run(store, [*ids[:150], 7, 8, 9])  # a branch shares what lies before it
    assert store.ledger.bytes == 303 * TOKEN + 11 * STATE
    store.clear()
    assert store.ledger.bytes == 0
    assert store.spaces() == set()


def test_running_rows_are_counted_and_survive() -> None:
    store = SnapshotStore(TOKEN)
    ids = list(range(50))
    run(store, ids)
    opened = store.open([*ids, 1])
    append(opened.sequence, [1])
    before = store.ledger.bytes
    assert before == (50 + 51) * TOKEN + 2 * STATE
    store.make_room(1 << 30)
    store.clear()
    assert store.ledger.bytes == before  # leased
    assert read(opened.sequence) == [*ids, 1]
    opened.sequence.close()
    opened.lease.release()
    store.make_room()
    assert store.ledger.bytes == 0


def test_inner_states_go_before_the_tokens_that_others_need() -> None:
    store = SnapshotStore(1 << 20)
    run(store, list(range(40)))
    run(store, list(range(80)))
    store.make_room((1 << 20) - store.ledger.bytes + 1)
    assert store.stats().states == 1
    assert store.stats().tokens == 80
    assert run(store, [*range(80), 7]) == 80


def test_what_a_row_runs_on_stays_when_what_was_built_on_it_goes() -> None:
    store = SnapshotStore(1 << 20)
    run(store, list(range(50)))
    run(store, list(range(80)))
    opened = store.open([*range(50), 7])
    store.make_room(1 << 30)
    assert store.stats().tokens == 50
    opened.sequence.close()
    opened.lease.release()
    store.make_room(1 << 30)
    assert store.ledger.bytes == 0


def test_nothing_is_kept_that_nobody_can_start_from() -> None:
    """When the last state of a branch goes, the tokens that only led to it go with it."""
    store = SnapshotStore(1 << 20)
    run(store, [*range(50), *range(100, 150)])
    run(store, [*range(50), *range(200, 250)])
    store.make_room((1 << 20) - 60 * TOKEN)
    assert store.ledger.bytes == 0
    assert store.stats().evicted_tokens == 150


def test_least_recently_used_goes_first() -> None:
    store = SnapshotStore(120 * TOKEN + 2 * STATE)
    run(store, [1, *range(10, 60)])
    run(store, [2, *range(10, 60)])
    run(store, [1, *range(10, 60), 5])
    run(store, [3, *range(10, 60)])
    store.make_room()
    assert run(store, [1, *range(10, 60), 5, 6]) == 52
    assert store.open([2, *range(10, 60), 5]).common == 0


def test_spaces_are_separate_and_reuse_off_keeps_nothing() -> None:
    store = SnapshotStore(1 << 20)
    run(store, list(range(50)), "a")
    assert run(store, [*range(50), 1], "b") == 0
    store.forget("a")
    assert store.spaces() == {"b"}
    off = SnapshotStore(1 << 20, reuse=False)
    run(off, list(range(50)))
    assert run(off, [*range(50), 1]) == 0
    assert off.ledger.bytes == 0


def test_a_state_that_cannot_go_back_is_not_cut() -> None:
    """CASES 20."""
    store = SnapshotStore(1 << 20)
    sequence = store.open([1]).sequence
    append(sequence, [1, 2, 3])
    assert not sequence.can_crop(2)
    with pytest.raises(ValueError, match="cannot be cut"):
        sequence.crop(2)
    sequence.crop(0)
    assert (sequence.length, store.ledger.bytes) == (0, 0)


def test_the_plan_follows_the_request() -> None:
    store = SnapshotStore(1 << 20)
    sampling = Sampling(max_tokens=1)
    plain = GenerateRequest(tuple(range(50)), sampling)
    named = GenerateRequest(tuple(range(50)), sampling, snapshots_at=(80, 40, 10))
    ahead = GenerateRequest(tuple(range(50)), sampling, prefill_only=True)
    assert store.plan(plain).at == (49,)
    assert store.plan(named).at == (10, 40)
    assert store.plan(named).useful(45) == (40, 40)
    assert store.plan(ahead).at == ()
    run(store, list(range(9)), recurrent=False)
    assert store.plan(named).useful(45) == (45, 50)


@given(
    calls=st.lists(
        st.tuples(st.integers(0, 3), st.integers(2, 200), st.integers(0, 3), st.integers(0, 200)),
        max_size=25,
    ),
    budget_tokens=st.integers(20, 1000),
    recurrent=st.booleans(),
)
def test_budget_holds_and_content_is_never_wrong(
    calls: list[tuple[int, int, int, int]], budget_tokens: int, recurrent: bool
) -> None:
    """Conversations that branch and are kept anywhere: `run` checks what it reads."""
    store = SnapshotStore(budget_tokens * TOKEN)
    for conversation, length, branch, at in calls:
        ids = [conversation, *range(10, 10 + length)]
        if branch:
            ids[length // 2 :] = [1000 * branch + i for i in ids[length // 2 :]]
        run(store, ids, at=at, recurrent=recurrent)
        stats = store.stats()
        assert stats.bytes == stats.tokens * TOKEN + stats.states * STATE
        store.make_room()
        assert store.ledger.bytes <= budget_tokens * TOKEN
    store.clear()
    assert store.ledger.bytes == 0


@pytest.mark.parametrize("copies", [0, 1])
@pytest.mark.parametrize("error", [torch.OutOfMemoryError, MemoryError])
def test_no_memory_to_part_two_sequences_is_a_miss(
    monkeypatch: pytest.MonkeyPatch, copies: int, error: type[Exception]
) -> None:
    """Starting inside a run copies it in two; nothing of an unfinished copy is counted."""
    store = SnapshotStore(1 << 30)
    run(store, list(range(40)), recurrent=False)
    left, take = [copies], Run.take

    def no_more(self: Run, start: int, stop: int) -> Run:
        left[0] -= 1
        if left[0] < 0:
            raise error("out of memory")
        return take(self, start, stop)

    with monkeypatch.context() as short:
        short.setattr(Run, "take", no_more)
        opened = store.open([*range(20), 99])
    assert (opened.reused, opened.common) == (0, 20)
    assert store.stats().bytes == 0
    opened.sequence.close()
    opened.lease.release()
    assert run(store, list(range(40)), recurrent=False) == 0
    store.clear()
    assert store.stats().bytes == 0

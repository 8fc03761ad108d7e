"""Kept sequences under a byte budget."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cachefriendly.kv.extent import Extent
from cachefriendly.kv.sequence import Sequence
from cachefriendly.store.manager import KVCacheManager

WIDTH = 8
BYTES_PER_TOKEN = 2 * 4 * WIDTH


def run(cache: KVCacheManager, ids: list[int], key: str = "") -> int:
    """Open, forward what is missing, keep, close: one call. Returns the reused tokens."""
    opened = cache.open(ids, key)
    reused = opened.reused
    assert read(opened.sequence) == ids[:reused]
    append(opened.sequence, ids[reused:])
    cache.keep(opened.sequence, ids, key)
    opened.sequence.close()
    opened.lease.release()
    return reused


def append(sequence: Sequence, ids: list[int]) -> None:
    for span in sequence.reserve(len(ids)):
        part = torch.tensor(ids[span.row_start : span.row_start + span.tokens], dtype=torch.float32)
        tile = part[None, :, None].expand(1, -1, WIDTH)
        span.extent.write(0, span.offset, tile, tile)
    sequence.commit()


def read(sequence: Sequence) -> list[int]:
    ids: list[int] = []
    for piece in sequence.pieces:
        key, _ = piece.extent.read(0, piece.start, piece.stop)
        ids += key[0, 0, :, 0].int().tolist()
    return ids


def test_a_conversation_reuses_everything_but_one_token() -> None:
    cache = KVCacheManager(1 << 20)
    ids = list(range(100))
    assert run(cache, ids) == 0
    assert run(cache, ids) == 99
    assert run(cache, [*ids, 7, 8]) == 100


def test_keys_are_separate() -> None:
    cache = KVCacheManager(1 << 20)
    run(cache, list(range(50)), "a")
    assert run(cache, list(range(50)), "b") == 0


def test_reuse_off_keeps_nothing() -> None:
    cache = KVCacheManager(1 << 20, reuse=False)
    run(cache, list(range(50)))
    assert run(cache, list(range(50))) == 0
    assert cache.ledger.bytes == 0


@given(
    calls=st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 300), st.integers(0, 3)), max_size=25
    ),
    budget_tokens=st.integers(64, 1500),
)
def test_budget_holds_and_content_is_never_wrong(
    calls: list[tuple[int, int, int]], budget_tokens: int
) -> None:
    """Six conversations of any lengths, branching in places: `run` checks what it reads."""
    budget = budget_tokens * BYTES_PER_TOKEN
    cache = KVCacheManager(budget)
    for conversation, length, branch in calls:
        ids = [conversation, *range(10, 10 + length)]
        if branch:
            ids[length // 2 :] = [1000 * branch + i for i in ids[length // 2 :]]
        run(cache, ids)
        cache.make_room()
        assert cache.ledger.bytes <= budget
    cache.clear()
    assert cache.ledger.bytes == 0
    assert cache.ledger.extents == 0


def test_least_recently_used_goes_first() -> None:
    cache = KVCacheManager(128 * BYTES_PER_TOKEN)
    run(cache, [1, *range(10, 60)])
    run(cache, [2, *range(10, 60)])
    run(cache, [1, *range(10, 60)])
    run(cache, [3, *range(10, 60)])
    cache.make_room()
    assert cache.lookup([1, *range(10, 60)]) == 51
    assert cache.lookup([2, *range(10, 60)]) == 0


def test_a_short_kept_prefix_does_not_pin_a_long_extent() -> None:
    """A 100-token slice kept 185 MB alive."""
    cache = KVCacheManager(1 << 30)
    prefix = list(range(40))
    run(cache, [*prefix, *range(1000, 1900)])
    run(cache, [*prefix, 7])
    whole = cache.ledger.bytes
    assert whole >= 940 * BYTES_PER_TOKEN
    freed = cache.make_room((1 << 30) - 60 * BYTES_PER_TOKEN)
    assert freed > 0
    assert cache.ledger.bytes <= 60 * BYTES_PER_TOKEN
    assert cache.lookup(prefix) == 40


def test_without_memory_for_a_copy_room_is_made_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = KVCacheManager(1 << 30)
    prefix = list(range(40))
    run(cache, [*prefix, *range(1000, 1900)])
    run(cache, [*prefix, 7])

    def no_memory(*_: object) -> None:
        raise torch.OutOfMemoryError("out of memory: tried to allocate 1 GiB")

    with monkeypatch.context() as patched:
        patched.setattr(Extent, "write", no_memory)
        cache.make_room((1 << 30) - 60 * BYTES_PER_TOKEN)
    assert cache.ledger.bytes <= 60 * BYTES_PER_TOKEN
    run(cache, prefix)
    assert cache.lookup(prefix) == 40
    cache.clear()
    assert (cache.ledger.bytes, cache.ledger.extents) == (0, 0)


def test_running_rows_are_not_evicted() -> None:
    cache = KVCacheManager(64 * BYTES_PER_TOKEN)
    run(cache, list(range(50)))
    opened = cache.open(list(range(51)))
    cache.make_room(1 << 30)
    assert read(opened.sequence) == list(range(50))
    opened.sequence.close()
    opened.lease.release()
    cache.make_room(1 << 30)
    assert cache.ledger.bytes == 0

"""Which part of a history is kept, over any lengths and turns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cachefriendly.window import share_of, window_start


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=40), st.integers(1, 200))
def test_the_window_is_a_function_of_the_history_and_moves_forward(
    messages: list[tuple[int, bool]], limit: int
) -> None:
    counts = [count for count, _ in messages]
    starts = [start for _, start in messages]
    previous = 0
    for size in range(len(messages) + 1):
        start = window_start(counts[:size], starts[:size], limit, share_of(limit, 0.5))
        assert start >= previous
        assert start == 0 or starts[start]
        fits = sum(counts[start:size]) <= limit
        assert fits or not any(starts[start + 1 : size])
        previous = start


def test_a_small_window_is_used_whole() -> None:
    assert [share_of(limit, 0.5) for limit in (63, 64, 200)] == [63, 32, 100]

"""The common prefix against a plain loop, over every pair of sequence types."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachefriendly.prefix import common_prefix

IDS = st.lists(st.integers(0, 1), max_size=12)
MAKE: list[Callable[[list[int]], Sequence[Any]]] = [tuple, list, lambda ids: array("I", ids)]


def by_loop(left: Sequence[Any], right: Sequence[Any], offset: int) -> int:
    equal = 0
    for a, b in zip(left, right[offset:], strict=False):
        if a != b:
            break
        equal += 1
    return equal


@given(IDS, IDS, st.integers(0, 14), st.sampled_from(MAKE), st.sampled_from(MAKE))
def test_equals_a_plain_loop(left, right, offset, make_left, make_right):
    found = common_prefix(make_left(left), make_right(right), offset)
    assert found == by_loop(left, right, offset)


@pytest.mark.parametrize(("left", "right", "length"), [("abc", "abd", 2), ("", "a", 0)])
def test_texts(left, right, length):
    assert common_prefix(left, right) == length

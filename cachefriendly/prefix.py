"""How far two sequences are equal from the start; compared by slices, never item by item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["common_prefix"]


def common_prefix(left: Sequence[Any], right: Sequence[Any], offset: int = 0) -> int:
    """How many items of ``left`` equal ``right`` from ``offset`` on.

    Tuples, lists, arrays and texts. Slices of different types never compare equal, so operands of
    different types are copied to tuples first; where that matters, give two of one type.
    """
    if type(left) is not type(right):
        left, right, offset = tuple(left), tuple(right[offset:]), 0
    limit = min(len(left), len(right) - offset)
    if limit <= 0:
        return 0
    if left[:limit] == right[offset : offset + limit]:
        return limit
    low, high = 0, limit  # left[:low] is equal, left[:high] is not
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[offset + low : offset + middle]:
            low = middle
        else:
            high = middle
    return low

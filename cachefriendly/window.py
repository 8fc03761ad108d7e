"""How much of a history is kept when it outgrows its limit: a window that moves rarely and far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["TRIM_TO", "share_of", "window_start"]

TRIM_TO: Final = 0.5
"""What a trim keeps at most, as a share of the limit. 1 drops as little as can be."""

# A trim costs the prefill of all that is kept, so one must last for many turns. Below this many
# tokens that prefill is too small to matter and every message that fits is kept.
_SMALL_WINDOW: Final = 64


def share_of(limit: int, trim_to: float) -> int:
    """Tokens that a trim of a window of ``limit`` keeps at most."""
    return limit if limit < _SMALL_WINDOW else int(limit * trim_to)


def window_start(counts: Sequence[int], starts: Sequence[bool], limit: int, target: int) -> int:
    """Index of the first message that is kept; as the history grows it never moves back.

    Walks the history as it was put in. When the window overflows, it moves to the first turn from
    which at most ``target`` tokens are used, or to the newest turn, which is never cut.

    Args:
        counts: tokens of each message.
        starts: whether the history may begin with that message.
        limit: tokens that the window holds at most.
        target: tokens that it holds at most after it moved; at most ``limit``.
    """
    start, total = 0, 0
    for index, count in enumerate(counts):
        total += count
        if total > limit:
            start, total = _advance(counts, starts, (start, index), total, target)
    return start


def _advance(
    counts: Sequence[int], starts: Sequence[bool], window: tuple[int, int], total: int, target: int
) -> tuple[int, int]:
    """The next start of a turn in ``window`` (both ends included), and the tokens from there on."""
    first, last = window
    best = first, total
    for index in range(first + 1, last + 1):
        total -= counts[index - 1]
        if starts[index]:
            best = index, total
            if total <= target:
                break
    return best

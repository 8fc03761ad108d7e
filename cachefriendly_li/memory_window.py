"""Which part of a history is sent: a window that moves rarely and in big steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from llama_index.core.base.llms.types import ChatMessage, MessageRole

__all__ = ["TRIM_TO", "begins_turn", "share_of", "window_start"]

TRIM_TO: Final = 0.5
"""What a trim keeps at most, as a share of the limit. 1 drops as little as the stock classes do."""

# A trim costs the prefill of all that is kept, so one must last for many turns. Below this many
# tokens that prefill is too small to matter and every message that fits is kept.
_SMALL_WINDOW: Final = 64
_FOLLOWERS: Final = (MessageRole.TOOL, MessageRole.FUNCTION, MessageRole.ASSISTANT)


def begins_turn(message: ChatMessage) -> bool:
    """Whether a history may begin here: never with a reply or with the result of a call."""
    return message.role not in _FOLLOWERS


def share_of(limit: int, trim_to: float) -> int:
    """Tokens that a trim of a window of ``limit`` keeps at most."""
    return limit if limit < _SMALL_WINDOW else int(limit * trim_to)


def window_start(
    counts: Sequence[int], starts: Sequence[bool], limit: int, target: int, first: int = 0
) -> int:
    """Index of the first message kept, from ``first`` on; it never moves back.

    Walks the history as it was put in. When the window overflows, it moves to the first turn from
    which at most ``target`` tokens are used, or to the newest turn, which is never cut.
    """
    start, total = first, 0
    for index in range(first, len(counts)):
        total += counts[index]
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

"""Which part of a history is sent: a window that moves rarely and in big steps."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from cachefriendly_li.nodes import question_alone

__all__ = ["TRIM_TO", "Counter", "Window", "begins_turn", "portions", "share_of", "window_start"]

Counter: TypeAlias = Callable[[Sequence[ChatMessage]], list[int]]
"""Tokens of each message."""

TRIM_TO: Final = 0.5
"""What a trim keeps at most, as a share of the limit. 1 drops as little as the stock classes do."""

# A trim costs the prefill of all that is kept, so one must last for many turns. Below this many
# tokens that prefill is too small to matter and every message that fits is kept.
_SMALL_WINDOW: Final = 64
_FOLLOWERS: Final = (MessageRole.TOOL, MessageRole.FUNCTION, MessageRole.ASSISTANT)


@dataclass(frozen=True, slots=True)
class Window:
    """What of a history is sent: messages from ``first`` on, without nodes before ``whole``.

    Both only move forward. ``mark`` tells the message at ``whole`` from others: a history that
    holds another one there has nothing to do with this window.
    """

    first: int = 0
    whole: int = 0
    mark: str = ""

    def over(self, messages: Sequence[ChatMessage]) -> Window:
        """This window if the history still is the one it was made for, else one at its start."""
        known = self.whole < len(messages) and _mark(messages[self.whole]) == self.mark
        return self if known or not self.whole else Window()

    def fit(
        self, messages: Sequence[ChatMessage], count: Counter, limit: int, target: int
    ) -> tuple[Window, list[ChatMessage]]:
        """The window moved so that it holds at most ``limit`` tokens, and what is in it.

        When it overflows, the oldest turns give up their retrieved nodes until ``target`` tokens
        are used; whole turns are dropped where that is not enough.
        """
        held = [
            question_alone(message) if index < self.whole else message
            for index, message in enumerate(messages)
        ][self.first :]
        whole = self.first + _shrink(held, max(self.whole - self.first, 0), count, (limit, target))
        starts = [begins_turn(message) for message in held]
        dropped = window_start(count(held), starts, limit, target)
        whole = max(whole, self.first + dropped)
        mark = _mark(messages[whole]) if whole else ""
        return Window(self.first + dropped, whole, mark), held[dropped:]


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


def _shrink(held: list[ChatMessage], whole: int, count: Counter, room: tuple[int, int]) -> int:
    """Put questions where messages with nodes are, oldest turns first; returns where it stopped."""
    limit, target = room
    total = sum(count(held))
    if total <= limit:
        return whole
    newest = max((i for i, message in enumerate(held) if begins_turn(message)), default=0)
    while total > target and whole < newest:
        alone = question_alone(held[whole])
        if alone is not held[whole]:
            before, after = count([held[whole], alone])
            held[whole], total = alone, total - before + after
        whole += 1
    return whole


def _mark(message: ChatMessage) -> str:
    """16 hex digits that tell a message from others: enough to see that a history changed."""
    text = f"{message.role.value}\n{message.content}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def portions(
    messages: Sequence[ChatMessage], counts: Sequence[int], size: int
) -> list[list[ChatMessage]]:
    """Whole turns, as many together as it takes to reach ``size`` tokens."""
    parts: list[list[ChatMessage]] = []
    used = size
    for message, count in zip(messages, counts, strict=False):
        if not parts or (used >= size and begins_turn(message)):
            parts.append([])
            used = 0
        parts[-1].append(message)
        used += count
    return parts

"""Which part of a history is sent: a window that moves rarely and in big steps."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from cachefriendly.window import window_start
from cachefriendly_li.nodes import question_alone

__all__ = ["Counter", "Window", "begins_turn", "portions"]

Counter: TypeAlias = Callable[[Sequence[ChatMessage]], list[int]]
"""Tokens of each message."""

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

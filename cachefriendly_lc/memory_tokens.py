"""`ConversationTokenBufferMemory` on state diffs, and how much of a history is dropped at once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage, get_buffer_string
from langchain_core.runnables.config import run_in_executor
from pydantic import Field

from cachefriendly.window import TRIM_TO, share_of
from cachefriendly_lc.memory_base import StateDiffMemory, leave_out, spoken, stock

__all__ = ["ConversationTokenBufferMemory", "TrimmedMemory"]


class TrimmedMemory(StateDiffMemory):
    """A memory with a token limit that drops old turns rarely and many at once.

    Dropping the oldest message changes the prompt's start, and all that is kept must be forwarded
    again. The stock classes do so at every turn once the limit is reached.

    Attributes:
        trim_to: when the limit is exceeded, what is kept is at most this share of it. 1 drops as
            little as the stock classes do. Limits under 64 tokens are used whole.
    """

    trim_to: float = Field(default=TRIM_TO, gt=0, le=1)

    def _overflow(self, count: Callable[[list[BaseMessage]], int], limit: int) -> list[BaseMessage]:
        """The oldest messages, which have to go; mostly none."""
        messages = self._kept()
        if count(messages) <= limit:
            return []
        target = share_of(limit, self.trim_to)
        first = bisect_left(
            range(len(messages)), True, key=lambda index: count(messages[index:]) <= target
        )
        return messages[: _start_of_turn(messages, first, whole=target < limit)]

    def _kept(self) -> list[BaseMessage]:
        return list(self.chat_memory.messages)


class ConversationTokenBufferMemory(TrimmedMemory, stock.ConversationTokenBufferMemory):
    """`langchain_classic.memory.ConversationTokenBufferMemory`: the newest turns that fit.

    What is dropped stays in the log. The stock class does not prune in ``asave_context``; here
    both forms do.
    """

    @property
    def buffer_as_str(self) -> str:
        return get_buffer_string(
            spoken(self.chat_memory.messages),
            human_prefix=self.human_prefix,
            ai_prefix=self.ai_prefix,
        )

    def save_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        super().save_context(inputs, outputs)
        self._prune()

    async def asave_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        await super().asave_context(inputs, outputs)
        await run_in_executor(None, self._prune)

    def _prune(self) -> None:
        oldest = self._overflow(self.llm.get_num_tokens_from_messages, self.max_token_limit)
        if oldest:
            leave_out(self.chat_memory, oldest)


def _start_of_turn(messages: Sequence[BaseMessage], first: int, *, whole: bool) -> int:
    """From ``first`` on where a history may begin: at a user message if ``whole`` and there is
    one, and never with the result of a call that is gone."""
    for index in range(first, len(messages)):
        if isinstance(messages[index], HumanMessage) and whole:
            return index
    while first < len(messages) and isinstance(messages[first], ToolMessage):
        first += 1
    return first

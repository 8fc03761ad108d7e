"""The classic memories on state diffs: the same classes, with tool calls and handles kept."""

from __future__ import annotations

from langchain_core.messages import BaseMessage, get_buffer_string

from cachefriendly_lc.memory_base import StateDiffMemory, newest_spoken, spoken, stock

__all__ = ["ConversationBufferMemory", "ConversationBufferWindowMemory"]


class ConversationBufferMemory(StateDiffMemory, stock.ConversationBufferMemory):
    """`langchain_classic.memory.ConversationBufferMemory`: the whole conversation."""

    def _buffer_as_str(self, messages: list[BaseMessage]) -> str:
        return super()._buffer_as_str(spoken(messages))


class ConversationBufferWindowMemory(StateDiffMemory, stock.ConversationBufferWindowMemory):
    """`langchain_classic.memory.ConversationBufferWindowMemory`: the newest ``k`` turns.

    Exactly ``k``, so from turn k + 1 on every prompt loses its oldest turn, and with it the keys
    of everything behind: a `ConversationTokenBufferMemory` drops many turns at once instead.
    """

    @property
    def buffer_as_messages(self) -> list[BaseMessage]:
        return newest_spoken(self.chat_memory.messages, 2 * self.k)

    @property
    def buffer_as_str(self) -> str:
        return get_buffer_string(
            spoken(self.buffer_as_messages),
            human_prefix=self.human_prefix,
            ai_prefix=self.ai_prefix,
        )

"""The classic memories on state diffs: the same classes, with tool calls and handles kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic import Field

from cachefriendly.errors import ConfigError, MissingExtra, RequestError
from cachefriendly_lc.history import StateDiffChatMessageHistory

try:
    from langchain_classic.memory import ConversationBufferMemory as _ConversationBufferMemory
except ImportError as error:
    raise MissingExtra("langchain-classic", "agents") from error

__all__ = ["ConversationBufferMemory"]


class ConversationBufferMemory(_ConversationBufferMemory):
    """`langchain_classic.memory.ConversationBufferMemory` whose history is a log of state diffs.

    ``save_context`` takes text as before, and messages: an `AIMessage` keeps its tool calls and
    its handle, a list keeps the whole turn with its tool results.
    """

    chat_memory: BaseChatMessageHistory = Field(default_factory=StateDiffChatMessageHistory)

    def save_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        self.chat_memory.add_messages(self._turn(inputs, outputs))

    async def asave_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        await self.chat_memory.aadd_messages(self._turn(inputs, outputs))

    def _turn(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> list[BaseMessage]:
        asked, answered = self._get_input_output(inputs, outputs)
        return [
            *_as_messages(asked, HumanMessage, "input"),
            *_as_messages(answered, AIMessage, "output"),
        ]

    def to_json_lines(self) -> str:
        """The memory as JSON lines, one per diff."""
        if not isinstance(self.chat_memory, StateDiffChatMessageHistory):
            raise ConfigError(
                f"chat_memory is {type(self.chat_memory).__name__}; only a "
                "StateDiffChatMessageHistory exports its diffs"
            )
        return self.chat_memory.to_json_lines()

    @classmethod
    def from_json_lines(cls, text: str, **options: Any) -> ConversationBufferMemory:
        """Inverse of `to_json_lines`; ``options`` are those of the constructor."""
        return cls(chat_memory=StateDiffChatMessageHistory.from_json_lines(text), **options)


def _as_messages(value: Any, kind: type[BaseMessage], what: str) -> Sequence[BaseMessage]:
    if isinstance(value, str):
        return [kind(content=value)]
    if isinstance(value, BaseMessage):
        return [value]
    if isinstance(value, list) and value and all(isinstance(m, BaseMessage) for m in value):
        return value
    raise RequestError(
        f"{what} of save_context is {type(value).__name__}; give a string, a message or a list "
        "of messages"
    )

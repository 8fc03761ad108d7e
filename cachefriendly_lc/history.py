"""A chat history that is a log of state diffs: constant bytes per turn, every point readable."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage

from cachefriendly.state import StateLog
from cachefriendly_lc.convert import message_from_langchain, message_to_langchain

__all__ = ["StateDiffChatMessageHistory"]


class StateDiffChatMessageHistory(BaseChatMessageHistory):
    """Keeps text, tool calls and handles of each message; ids and provider metadata are dropped."""

    def __init__(self, log: StateLog | None = None) -> None:
        self.log = StateLog() if log is None else log

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """A new list: changing it changes nothing here."""
        return [message_to_langchain(message) for message in self.log.messages]

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append all of them, or none when one cannot be kept."""
        converted = [message_from_langchain(m, index=i) for i, m in enumerate(messages)]
        for message in converted:
            self.log.add_message(message)

    def clear(self) -> None:
        """Start over; the log still knows the earlier messages (`StateLog.at`)."""
        self.log.clear()

    def to_json_lines(self) -> str:
        return self.log.to_json_lines()

    @classmethod
    def from_json_lines(cls, text: str) -> StateDiffChatMessageHistory:
        return cls(StateLog.from_json_lines(text))

"""`AnchoredPrompt` for LlamaIndex: a system `ChatMessage` that carries its anchors' values."""

from __future__ import annotations

from dataclasses import dataclass

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from cachefriendly.anchors import AnchoredText
from cachefriendly.messages import ANCHORS_KEY

__all__ = ["AnchoredPrompt"]


@dataclass(frozen=True, slots=True)
class AnchoredPrompt(AnchoredText):
    """A system prompt whose volatile values go with the newest user message.

    Example:
        >>> prompt = AnchoredPrompt.from_template("You help [USER_ID_12]. It is [TIME_STAMP_19].")
        >>> llm.chat([prompt.message(user_id="u-77", time_stamp=now()), *history])
    """

    def message(self, **values: object) -> ChatMessage:
        """The system message with what the anchors stand for now."""
        extras = {ANCHORS_KEY: dict(self.bind(**values))}
        return ChatMessage(role=MessageRole.SYSTEM, content=self.text, additional_kwargs=extras)

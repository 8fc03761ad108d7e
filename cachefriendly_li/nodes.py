"""A user's message with retrieved nodes: kept as it was sent, shown as it was asked.

In memory its text is what the model read, with the question apart in
``additional_kwargs["cachefriendly_question"]``. A chat history shows the question, with the text
apart in ``additional_kwargs["cachefriendly_sent"]``, so that it can be handed back.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias, get_args

from llama_index.core.base.llms.types import ChatMessage, MessageRole

from cachefriendly.errors import ConfigError

__all__ = [
    "QUESTION_KEY",
    "SENT_KEY",
    "Layout",
    "as_sent",
    "as_shown",
    "check_layout",
    "question_alone",
    "user_message",
    "with_nodes",
]

Layout: TypeAlias = Literal["tail", "stock"]
"""Where retrieved nodes stand: in the newest user message, or where LlamaIndex puts them."""

QUESTION_KEY: Final = "cachefriendly_question"
SENT_KEY: Final = "cachefriendly_sent"


def check_layout(layout: str) -> Layout:
    """
    Raises:
        ConfigError: there is no layout of this name.
    """
    if layout not in get_args(Layout):
        raise ConfigError(f"layout={layout!r} is unknown; use 'tail' or 'stock'")
    return layout  # type: ignore[return-value]


def user_message(text: str, **extras: Any) -> ChatMessage:
    return ChatMessage(role=MessageRole.USER, content=text, additional_kwargs=extras)


def with_nodes(question: str, text: str) -> ChatMessage:
    """The message that is sent and kept: ``text`` holds the nodes and the question."""
    return user_message(text, **{QUESTION_KEY: question})


def as_shown(message: ChatMessage) -> ChatMessage:
    """The question of a message with nodes; any other message itself."""
    if not _has(message, QUESTION_KEY):
        return message
    extras = {key: v for key, v in message.additional_kwargs.items() if key != QUESTION_KEY}
    shown = user_message(message.additional_kwargs[QUESTION_KEY], **extras)
    shown.additional_kwargs[SENT_KEY] = message.content or ""
    return shown


def as_sent(message: ChatMessage) -> ChatMessage:
    """Undoes `as_shown`."""
    if not _has(message, SENT_KEY):
        return message
    extras = {key: v for key, v in message.additional_kwargs.items() if key != SENT_KEY}
    sent = user_message(message.additional_kwargs[SENT_KEY], **extras)
    sent.additional_kwargs[QUESTION_KEY] = message.content or ""
    return sent


def question_alone(message: ChatMessage) -> ChatMessage:
    """A message without its nodes: what is left of an old turn when there is no room for more."""
    if not _has(message, QUESTION_KEY):
        return message
    return user_message(message.additional_kwargs[QUESTION_KEY])


def _has(message: ChatMessage, key: str) -> bool:
    return message.role == MessageRole.USER and isinstance(message.additional_kwargs.get(key), str)

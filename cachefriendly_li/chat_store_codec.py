"""LlamaIndex messages as entries of a `StateLog` and back: nothing of a message is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.base.llms.types import ChatMessage

from cachefriendly.errors import RequestError
from cachefriendly.messages import Message
from cachefriendly.state import StateDiff
from cachefriendly_li.convert import message_from_llama_index, message_to_llama_index

__all__ = ["chat_of", "entry_of", "note_of", "with_note"]

# What an entry's ``extra`` holds of a message: its additional_kwargs, or all of it. And a note.
_KWARGS = "additional_kwargs"
_CHAT = "chat"
_NOTE = "note"


def entry_of(chat: ChatMessage, index: int = 0) -> tuple[Message, dict[str, Any]]:
    """The engine's message, and as plain JSON what of ``chat`` it does not hold.

    Raises:
        RequestError: the engine cannot read a block, or a value cannot be stored as JSON.
    """
    message = message_from_llama_index(chat, index)
    plain = message_to_llama_index(message)
    if plain == chat:
        return message, {}
    try:
        stored = chat.model_dump(mode="json")
    except (TypeError, ValueError) as error:
        raise RequestError(f"message {index} cannot be stored as JSON: {error}") from error
    if plain.blocks == chat.blocks and plain.role == chat.role:
        return message, {_KWARGS: stored[_KWARGS]}
    return message, {_CHAT: stored}


def chat_of(entry: StateDiff) -> ChatMessage:
    """A new message equal to the one that `entry_of` was given."""
    if _CHAT in entry.extra:
        return ChatMessage.model_validate(entry.extra[_CHAT])
    if entry.message is None:
        raise RequestError(f"diff {entry.seq} ({entry.kind}) brought no message")
    chat = message_to_llama_index(entry.message)
    extras: Mapping[str, Any] | None = entry.extra.get(_KWARGS)
    if extras is not None:
        chat.additional_kwargs = dict(extras)
    return chat


def note_of(entry: StateDiff) -> Mapping[str, Any]:
    """What was noted beside a message; empty for most."""
    note: Mapping[str, Any] = entry.extra.get(_NOTE) or {}
    return note


def with_note(extra: Mapping[str, Any], note: Mapping[str, Any]) -> dict[str, Any]:
    """``extra`` of an entry with another note; an empty one leaves nothing behind."""
    rest = {key: value for key, value in extra.items() if key != _NOTE}
    return {**rest, _NOTE: dict(note)} if note else rest

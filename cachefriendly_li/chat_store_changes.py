"""What a chat store does to a conversation's log, as functions of the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base_db import MessageStatus

from cachefriendly.prefix import common_prefix
from cachefriendly.state import StateDiff, StateLog
from cachefriendly_li.chat_store_codec import chat_of, entry_of, note_of, with_note

__all__ = ["add", "delete", "delete_at", "drop", "edit", "entries", "note", "replace_all", "take"]


def entries(log: StateLog, status: MessageStatus | None) -> Sequence[StateDiff]:
    """The entries of this status, or all, in the order in which they were added."""
    if status is MessageStatus.ACTIVE:
        return log.entries
    if status is MessageStatus.ARCHIVED:
        return log.archived
    return sorted((*log.archived, *log.entries), key=lambda entry: entry.seq)


def add(log: StateLog, messages: Sequence[ChatMessage], status: MessageStatus) -> None:
    """Append; a message that cannot be stored is refused before the log is touched."""
    for message, extra in [entry_of(chat, index) for index, chat in enumerate(messages)]:
        log.add_message(message, extra=extra)
        if status is MessageStatus.ARCHIVED:
            log.archive_message(len(log.entries) - 1)


def replace_all(log: StateLog, messages: Sequence[ChatMessage], status: MessageStatus) -> None:
    """Make the conversation these messages; what it already begins with costs no diff."""
    same = 0 if status is MessageStatus.ARCHIVED or log.archived else _common(log, messages)
    if same == 0 and (log.entries or log.archived):
        log.clear()
    for index in reversed(range(same, len(log.entries))):
        log.remove_message(index)
    add(log, messages[same:], status)


def delete(log: StateLog, status: MessageStatus | None) -> None:
    """Forget the messages of this status, or all."""
    active = log.entries
    if status is MessageStatus.ACTIVE and log.archived:
        for index in reversed(range(len(active))):
            log.remove_message(index)
    elif status is not MessageStatus.ARCHIVED:
        if active or log.archived:
            log.clear()
    elif log.archived:
        log.clear()
        for entry in active:
            if entry.message is not None:
                log.add_message(entry.message, extra=entry.extra)


def delete_at(log: StateLog, index: int) -> ChatMessage | None:
    """Drop the message at this place among all of them; None when there is no such place."""
    everything = entries(log, None)
    if not 0 <= index < len(everything):
        return None
    entry = everything[index]
    if entry in log.archived:
        kept = [e for e in log.archived if e is not entry]
        active = log.entries
        log.clear()
        for number, rest in enumerate((*kept, *active)):
            if rest.message is not None:
                log.add_message(rest.message, extra=rest.extra)
            if number < len(kept):
                log.archive_message(0)
    else:
        log.remove_message(log.entries.index(entry))
    return chat_of(entry)


def take(log: StateLog, count: int, out: Callable[[int], Any]) -> list[ChatMessage]:
    """Let the ``count`` oldest active messages go through ``out``; what they were."""
    oldest = log.entries[: max(count, 0)]
    for _ in oldest:
        out(0)
    return [chat_of(entry) for entry in oldest]


def note(log: StateLog, seq: int, noted: Mapping[str, Any]) -> None:
    """Put a note beside the active message ``seq``; nothing when it is gone."""
    for index, entry in enumerate(log.entries):
        if entry.seq == seq:
            log.note(index, with_note(entry.extra, noted))


def edit(log: StateLog, seq: int, chat: ChatMessage) -> None:
    """Another text for the active message ``seq``, its note kept; nothing when it is gone."""
    for index, entry in enumerate(log.entries):
        if entry.seq == seq:
            message, extra = entry_of(chat, index)
            log.edit_message(index, message, extra=with_note(extra, note_of(entry)))


def drop(log: StateLog, seq: int) -> None:
    """Remove the active message ``seq``, if it is still there."""
    for index, entry in enumerate(log.entries):
        if entry.seq == seq:
            log.remove_message(index)


def _common(log: StateLog, messages: Sequence[ChatMessage]) -> int:
    """How many messages the conversation begins with already."""
    held = [chat_of(entry) for entry in log.entries[: len(messages)]]
    return common_prefix(held, list(messages))

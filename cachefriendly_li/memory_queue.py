"""The active messages of a `Memory`, with notes beside them, in whatever store it was given."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Protocol

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from cachefriendly_li.db_store import StateDiffDBChatStore, StoredMessage

__all__ = ["ForeignQueue", "Queue", "queue_of", "replace_active"]


class Queue(Protocol):
    """What `Memory` needs of a store; a `StateDiffDBChatStore` is one."""

    async def stored(self, key: str) -> list[StoredMessage]: ...

    async def note(self, key: str, seq: int, note: Mapping[str, Any]) -> None: ...

    async def edit(self, key: str, seq: int, chat: ChatMessage) -> None: ...

    async def drop(self, key: str, seq: int) -> None: ...

    async def archive_until(self, key: str, seq: int) -> list[ChatMessage]: ...


class ForeignQueue:
    """Any other `AsyncDBChatStore`, which keeps no notes: they live in this object, so another
    process does not replay memory blocks but says them anew."""

    def __init__(self, store: AsyncDBChatStore) -> None:
        self._store = store
        self._notes: dict[str, Mapping[str, Any]] = {}

    async def stored(self, key: str) -> list[StoredMessage]:
        """Numbered by their place among all messages."""
        first = await self._store.count_messages(key, MessageStatus.ARCHIVED)
        messages = await self._store.get_messages(key, MessageStatus.ACTIVE)
        return [
            StoredMessage(seq, chat, self._notes.get(_mark(key, seq, chat), {}))
            for seq, chat in enumerate(messages, start=first)
        ]

    async def note(self, key: str, seq: int, note: Mapping[str, Any]) -> None:
        for message in await self.stored(key):
            if message.seq == seq:
                self._notes[_mark(key, seq, message.chat)] = note

    async def edit(self, key: str, seq: int, chat: ChatMessage) -> None:
        """The contract knows no edit, so the active messages are set anew."""
        messages = await self.stored(key)
        await replace_active(self._store, key, [chat if m.seq == seq else m.chat for m in messages])
        for message in messages:
            if message.seq == seq and message.note:
                await self.note(key, seq, message.note)

    async def drop(self, key: str, seq: int) -> None:
        kept = [message.chat for message in await self.stored(key) if message.seq != seq]
        await replace_active(self._store, key, kept)

    async def archive_until(self, key: str, seq: int) -> list[ChatMessage]:
        due = sum(message.seq <= seq for message in await self.stored(key))
        return await self._store.archive_oldest_messages(key, due)


async def replace_active(store: AsyncDBChatStore, key: str, messages: list[ChatMessage]) -> None:
    """Make these the active messages; archived ones, which setting would forget, stay archived."""
    archived = await store.get_messages(key, MessageStatus.ARCHIVED)
    if not archived:
        await store.set_messages(key, messages)
        return
    await store.set_messages(key, archived, MessageStatus.ARCHIVED)
    await store.add_messages(key, messages)


def queue_of(store: AsyncDBChatStore) -> Queue:
    return store if isinstance(store, StateDiffDBChatStore) else ForeignQueue(store)


def _mark(key: str, seq: int, chat: ChatMessage) -> str:
    text = f"{key}\n{seq}\n{chat.content}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

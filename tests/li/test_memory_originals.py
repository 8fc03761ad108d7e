"""What LlamaIndex's own tests ask of its `Memory`, asked of ours where nothing else asks it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, TextBlock
from llama_index.core.bridge.pydantic import Field
from llama_index.core.memory import StaticMemoryBlock
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from cachefriendly_li import Memory, StateDiffDBChatStore
from tests.li.memory_puts import put_all

ACTIVE, ARCHIVED = MessageStatus.ACTIVE, MessageStatus.ARCHIVED


class OwnStore(AsyncDBChatStore):
    """A store of somebody's own, as plain as the contract allows; archiving takes its time."""

    held: dict[MessageStatus, list[ChatMessage]] = Field(
        default_factory=lambda: {ACTIVE: [], ARCHIVED: []}
    )
    delays: list[float] = Field(default_factory=list)

    async def get_messages(
        self, key: str, status: Any = ACTIVE, limit: Any = None, offset: Any = None
    ) -> list[ChatMessage]:
        found = [*self.held[ARCHIVED], *self.held[ACTIVE]] if status is None else self.held[status]
        return found[offset or 0 :][:limit]

    async def count_messages(self, key: str, status: Any = ACTIVE) -> int:
        return len(await self.get_messages(key, status))

    async def add_message(self, key: str, message: ChatMessage, status: Any = ACTIVE) -> None:
        self.held[status].append(message)

    async def add_messages(self, key: str, messages: Any, status: Any = ACTIVE) -> None:
        self.held[status].extend(messages)

    async def set_messages(self, key: str, messages: Any, status: Any = ACTIVE) -> None:
        self.held[status] = list(messages)

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        return self.held[ACTIVE].pop(idx) if idx < len(self.held[ACTIVE]) else None

    async def delete_messages(self, key: str, status: Any = None) -> None:
        for each in MessageStatus if status is None else [status]:
            self.held[each] = []

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        gone, self.held[ACTIVE] = self.held[ACTIVE][:n], self.held[ACTIVE][n:]
        return gone

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        await asyncio.sleep(self.delays.pop(0) if self.delays else 0)
        gone = await self.delete_oldest_messages(key, n)
        self.held[ARCHIVED] += gone
        return gone

    async def get_keys(self) -> list[str]:
        return ["k"]


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


def small(store: AsyncDBChatStore) -> Memory:
    """It holds a hundred words."""
    return Memory.from_defaults(
        session_id="k",
        chat_store=store,
        tokenizer_fn=str.split,
        token_limit=100,
        token_flush_size=40,
        chat_history_token_ratio=1.0,
    )


async def test_a_store_of_ones_own_gets_what_is_flushed() -> None:
    store = OwnStore()
    memory = small(store)
    await memory.aput_messages([user("x " * 60), user("y " * 60)])
    assert memory.sql_store is store
    assert [m.content for m in await memory.aget()] == ["y " * 60]
    assert [m.content for m in store.held[ARCHIVED]] == ["x " * 60]
    assert len(await memory.aget_all()) == 2


@pytest.mark.parametrize("make", [OwnStore, StateDiffDBChatStore])
async def test_puts_at_once_archive_what_puts_in_a_row_do(make: Any) -> None:
    kept = []
    for together in (False, True):
        store = make()
        if together and isinstance(store, OwnStore):
            store.delays = [0.01, 0.05]
        memory = small(store)
        await memory.aset([user(f"{n} " + "w " * 11) for n in range(8)])
        new = [user(f"{name} " + "w " * 11) for name in "ab"]
        await put_all(memory, new, together=together)
        kept.append([m.content for m in await memory.aget()])
    assert kept[0] == kept[1]
    assert 0 < len(kept[0]) < 8


def test_the_constructor_takes_a_store_and_sync_code_uses_it_from_loop_to_loop() -> None:
    memory = Memory(token_limit=1000, session_id="k", sql_store=OwnStore())
    memory.put(user("one"))
    memory.put(user("two"))
    assert [m.content for m in memory.get()] == ["one", "two"]


def test_several_parts_of_a_block_are_lines_of_its_text() -> None:
    parts = [TextBlock(text="Ada likes tea."), TextBlock(text="Bob does not.")]
    block = StaticMemoryBlock(name="facts", static_content=parts)
    memory = Memory.from_defaults(memory_blocks=[block], tokenizer_fn=str.split)
    memory.put(user("Hi"))
    (message,) = memory.get()
    assert "<facts>\nAda likes tea.\nBob does not.\n</facts>" in (message.content or "")

"""Names and arguments of the memories: those of LlamaIndex, and what they add."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import memory as stock
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base_db import MessageStatus
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

import cachefriendly_li
from cachefriendly.errors import ConfigError
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import CacheFriendlyLLM, Memory, StateDiffDBChatStore

NAMES = ["ChatMemoryBuffer", "ChatSummaryMemoryBuffer", "Memory"]
ADDED = {
    "ChatMemoryBuffer": {"trim_to"},
    "ChatSummaryMemoryBuffer": {"trim_to"},
    "Memory": {"layout", "llm", "path", "trim_to", "chat_store"},  # the last since 0.14.2x
}


@pytest.mark.parametrize("name", NAMES)
def test_names_and_arguments_are_those_of_llama_index(name: str) -> None:
    ours, theirs = getattr(cachefriendly_li, name), getattr(stock, name)
    assert issubclass(ours, theirs)
    assert ours.class_name() == theirs.class_name()
    known, expected = (inspect.signature(kind.from_defaults).parameters for kind in (ours, theirs))
    assert {n: p.default for n, p in known.items() if n in expected} == {
        n: p.default for n, p in expected.items()
    }
    assert [n for n in known if n in expected] == list(expected)  # by position, too
    assert set(known) - set(expected) <= ADDED[name]
    assert set(theirs.model_fields) <= set(ours.model_fields)


@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_counted_by_the_engine(name: str) -> None:
    llm = CacheFriendlyLLM(engine=ScriptedEngine("Hi", context_window=1000))
    kind: Any = getattr(cachefriendly_li, name)
    assert kind.from_defaults(llm=llm).tokenizer_fn("é") == list("é".encode())
    assert kind.from_defaults(llm=llm, tokenizer_fn=str.split).tokenizer_fn("é e") == ["é", "e"]
    found = kind.from_defaults()  # LlamaIndex's default where there is no engine
    assert found.tokenizer_fn("hello there") != list(b"hello there")
    found.use_llm(llm)
    assert found.tokenizer_fn("é") == list("é".encode())
    given = kind.from_defaults(tokenizer_fn=str.split)
    given.use_llm(llm)
    assert given.tokenizer_fn("é e") == ["é", "e"]
    if name != "Memory":
        assert kind.from_defaults(llm=llm).token_limit == 750


def test_where_a_memory_keeps_its_messages(tmp_path: Path) -> None:
    file = tmp_path / "chat.sqlite"
    assert _path(Memory.from_defaults()) is None
    assert _path(Memory.from_defaults(async_database_uri="sqlite+aiosqlite:///:memory:")) is None
    by_uri = Memory.from_defaults(session_id="s", async_database_uri=f"sqlite+aiosqlite:///{file}")
    by_path = Memory.from_defaults(session_id="s", path=file)
    assert _path(by_uri) == _path(by_path) == str(file)
    by_uri.put(ChatMessage(role="user", content="hi"))
    assert [m.content for m in by_path.get()] == ["hi"]
    assert Memory.from_defaults(session_id="s", path=file, table_name="other").get() == []
    other = Memory.from_defaults(async_database_uri="postgresql+asyncpg://h/d", table_name="t")
    assert isinstance(other.sql_store, SQLAlchemyChatStore)
    assert other.sql_store.table_name == "t"
    store = StateDiffDBChatStore()
    assert Memory.from_defaults(chat_store=store).sql_store is store
    with pytest.raises(ConfigError, match="path= or another store"):
        Memory.from_defaults(path=file, chat_store=store)


def _path(memory: Memory) -> str | None:
    assert isinstance(memory.sql_store, StateDiffDBChatStore)
    return memory.sql_store.path


async def test_the_contract_of_memory_sync_and_async() -> None:
    memory = Memory(token_limit=1000, session_id="s")
    one, two = ChatMessage(role="user", content="1"), ChatMessage(role="assistant", content="2")
    await memory.aput(one)
    await memory.aput_messages([two])
    assert await memory.aget() == memory.get() == [one, two]
    assert await memory.aget_all(status=MessageStatus.ACTIVE) == [one, two]
    memory.put(one)
    memory.put_messages([two])
    assert memory.get_all() == [one, two, one, two]
    await memory.aset([one])
    assert memory.get() == [one]
    await memory.areset(status=MessageStatus.ACTIVE)
    assert memory.get() == []
    memory.set([one, two])
    memory.reset()
    assert memory.get_all() == []
    assert Memory.from_defaults(chat_history=[one]).get() == [one]


def test_what_llama_index_refuses_is_refused() -> None:
    block = stock.StaticMemoryBlock(name="a", static_content="x")
    with pytest.raises(ValueError, match="unique names"):
        Memory.from_defaults(memory_blocks=[block, block])
    for kind in (Memory, cachefriendly_li.ChatSummaryMemoryBuffer):
        with pytest.raises(ValueError, match="Token limit"):
            kind(token_limit=0)
    with pytest.raises(ValueError, match="Unexpected keyword"):
        cachefriendly_li.ChatSummaryMemoryBuffer.from_defaults(colour=1)

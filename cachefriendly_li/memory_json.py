"""A `Memory`'s chat store and memory blocks as plain JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from llama_index.core.llms.llm import LLM
from llama_index.core.memory import FactExtractionMemoryBlock, StaticMemoryBlock
from llama_index.core.memory.memory import BaseMemoryBlock
from llama_index.core.settings import Settings
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore
from sqlalchemy.engine import make_url

from cachefriendly.errors import RequestError
from cachefriendly_li.db_store import StateDiffDBChatStore

__all__ = ["dump_blocks", "dump_store", "load_blocks", "load_store", "store_for"]

_FACTS: Final = "facts"
_COMMON: Final = ("name", "description", "priority", "accept_short_term_memory")
_OF_FACTS: Final = (*_COMMON, _FACTS, "max_facts")


def store_for(uri: str | None, engine: Any, table_name: str, schema: str | None) -> Any:
    """The chat store that LlamaIndex's own arguments ask for.

    Memory and SQLite files are ours; another database, and an engine of one's own, stay with
    LlamaIndex's store.
    """
    url = None if uri is None else make_url(uri)
    sqlite = url is None or (url.get_backend_name() == "sqlite" and not url.query)
    if engine is not None or not sqlite:
        return SQLAlchemyChatStore(
            table_name=table_name, async_database_uri=uri, async_engine=engine, db_schema=schema
        )
    path = None if url is None or url.database in (None, "", ":memory:") else url.database
    return StateDiffDBChatStore(path, table_name=table_name)


def dump_store(store: AsyncDBChatStore, session_id: str) -> dict[str, Any] | None:
    """None: it can only be found again in this process."""
    if isinstance(store, StateDiffDBChatStore):
        return store.to_dict(only=session_id)
    if isinstance(store, SQLAlchemyChatStore) and not store._is_in_memory_uri(
        store.async_database_uri
    ):
        return {
            "class_name": store.class_name(),
            "table_name": store.table_name,
            "async_database_uri": str(store.async_database_uri),
            "db_schema": store.db_schema,
        }
    return None


def load_store(data: Mapping[str, Any] | None, live: Any) -> Any:
    """Inverse of `dump_store`; ``live`` is the store itself, if it is still there."""
    if data is None:
        if live is None:
            raise RequestError("the memory's chat store is not in this process; pass chat_store=")
        return live
    if data.get("class_name") == StateDiffDBChatStore.class_name():
        return StateDiffDBChatStore.from_dict(data)
    options = {key: value for key, value in data.items() if key != "class_name"}
    return live if live is not None else SQLAlchemyChatStore(**options)


def dump_blocks(blocks: Sequence[BaseMemoryBlock[Any]]) -> list[dict[str, Any]]:
    """LlamaIndex's static and fact blocks with what they know; of others the name."""
    return [_dump_block(block) for block in blocks]


def _dump_block(block: BaseMemoryBlock[Any]) -> dict[str, Any]:
    if type(block) is StaticMemoryBlock:
        return {"static": block.model_dump(mode="json")}
    if isinstance(block, FactExtractionMemoryBlock):
        return {_FACTS: block.model_dump(mode="json", include=set(_OF_FACTS))}
    return {"name": block.name}


def load_blocks(
    data: Sequence[Mapping[str, Any]], live: Sequence[BaseMemoryBlock[Any]], llm: LLM | None
) -> list[BaseMemoryBlock[Any]]:
    """Inverse of `dump_blocks`; ``live`` are the blocks themselves, if they are still there.

    Raises:
        RequestError: a block is neither in the data nor among ``live``.
    """
    known = {block.name: block for block in live}
    return [_load_block(item, known, llm) for item in data]


def _load_block(
    item: Mapping[str, Any], live: Mapping[str, BaseMemoryBlock[Any]], llm: LLM | None
) -> BaseMemoryBlock[Any]:
    if "static" in item:
        return StaticMemoryBlock.model_validate(item["static"])
    if _FACTS in item:
        state = item[_FACTS]
        twin = live.get(state["name"])
        if twin is not None:
            return twin.model_copy(update={_FACTS: list(state[_FACTS])})
        writer = llm or Settings._llm
        if writer is None:
            # Without one the block still tells its facts; `Memory.use_llm` gives it one.
            return FactExtractionMemoryBlock.model_construct(**state, llm=None)
        return FactExtractionMemoryBlock(**state, llm=writer)
    if item["name"] not in live:
        raise RequestError(
            f"memory block {item['name']!r} holds objects that no JSON can; pass "
            "Memory.from_dict(data, memory_blocks=[...]) with it, or give the memory to run()"
        )
    return live[item["name"]]

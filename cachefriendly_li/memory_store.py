"""The chat store of a `Memory`: made from LlamaIndex's arguments, told as JSON, found again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from cachefriendly.errors import RequestError
from cachefriendly_li.db_store import StateDiffDBChatStore

__all__ = ["dump_store", "load_store", "store_for"]


def store_for(
    uri: str | None, engine: AsyncEngine | None, table_name: str, schema: str | None
) -> AsyncDBChatStore:
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
    """Plain JSON; None where the store can only be found again in this process."""
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


def load_store(data: Mapping[str, Any] | None, live: AsyncDBChatStore | None) -> AsyncDBChatStore:
    """Inverse of `dump_store`; ``live`` is the store itself, if it is still there.

    Raises:
        RequestError: the data does not say where the messages are, and the store is gone.
    """
    if data is None:
        if live is None:
            raise RequestError("the memory's chat store is not in this process; pass chat_store=")
        return live
    if data.get("class_name") == StateDiffDBChatStore.class_name():
        return StateDiffDBChatStore.from_dict(data)
    options = {key: value for key, value in data.items() if key != "class_name"}
    return live if live is not None else SQLAlchemyChatStore(**options)

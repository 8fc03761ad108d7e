"""A LlamaIndex chat store that keeps diffs: one `StateLog` per conversation, plain JSON outside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr, SerializationInfo, model_serializer
from llama_index.core.storage.chat_store import BaseChatStore, SimpleChatStore
from llama_index.core.storage.chat_store.loading import load_chat_store
from pydantic import SerializerFunctionWrapHandler

from cachefriendly.errors import RequestError
from cachefriendly.state import MemoryLog, SqliteLog, StateLog, session_names
from cachefriendly_li.chat_store_thread import ChatThread
from cachefriendly_li.store_thread import in_thread

__all__ = ["StateDiffChatStore", "dump_store", "load_store"]

_T = TypeVar("_T")


class StateDiffChatStore(BaseChatStore):
    """`SimpleChatStore` on state diffs: edits, removals and resets are appended, never lost.

    In memory, or with ``path`` in an SQLite file that processes and `StateDiffDBChatStore` may
    share. `to_dict`, `from_dict`, `to_json` and `from_json` use plain JSON; pickling goes through
    them. A message the engine cannot read (an image) is refused when it is put in.
    """

    path: str | None = None

    _threads: dict[str, ChatThread] = PrivateAttr(default_factory=dict)
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    def __init__(self, path: str | Path | None = None) -> None:
        values: dict[str, Any] = {"path": None if path is None else str(path)}
        super().__init__(**values)
        if path is not None:
            self.path = str(SqliteLog(path, "cachefriendly").path)  # refuses what cannot be used

    @classmethod
    def class_name(cls) -> str:
        return "StateDiffChatStore"

    def log(self, key: str) -> StateLog:
        """The diffs of one conversation, edits made in place included."""
        return self._thread(key).log

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        self._thread(key).replace(messages)

    def get_messages(self, key: str) -> list[ChatMessage]:
        return self._thread(key).messages if self._known(key) else []

    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        thread = self._thread(key)
        if idx is None or idx >= len(thread.messages):
            thread.add([message])
        else:
            thread.insert(message, idx)

    def add_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """All of them in one step, or none when one is refused."""
        self._thread(key).add(messages)

    def summarize(self, key: str, oldest: list[ChatMessage], summary: ChatMessage | None) -> bool:
        """Put ``summary`` in the place of the oldest messages, or nothing; the log keeps them.

        False, and nothing changes, when these are not the oldest any more.
        """
        return self._thread(key).summarize(oldest, summary)

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        return self._thread(key).clear() if self._known(key) else None

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        return self._thread(key).remove(idx) if self._known(key) and idx >= 0 else None

    def delete_last_message(self, key: str) -> ChatMessage | None:
        return self._thread(key).remove(-1) if self._known(key) else None

    def get_keys(self) -> list[str]:
        return list(self._threads) if self.path is None else session_names(self.path)

    # In memory nothing waits, so the async twins need no thread; a file is read in one.

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        await self._run(lambda: self.set_messages(key, messages))

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        return await self._run(lambda: self.get_messages(key))

    async def async_add_message(self, key: str, message: ChatMessage) -> None:
        await self._run(lambda: self.add_message(key, message))

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        return await self._run(lambda: self.delete_messages(key))

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        return await self._run(lambda: self.delete_message(key, idx))

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        return await self._run(lambda: self.delete_last_message(key))

    async def aget_keys(self) -> list[str]:
        return await self._run(self.get_keys)

    @model_serializer(mode="wrap")
    def custom_model_dump(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        if self.path is not None:
            return {"path": self.path, "class_name": self.class_name()}
        threads = {key: thread.log.to_json_lines() for key, thread in list(self._threads.items())}
        return {"threads": threads, "class_name": self.class_name()}

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> StateDiffChatStore:
        """Inverse of `to_dict`.

        Raises:
            RequestError: the data was not written by this class, or a log is torn.
        """
        if data.get("path") is not None:
            return cls(data["path"])
        threads = data.get("threads")
        if not isinstance(threads, Mapping):
            raise RequestError("not a StateDiffChatStore: the key 'threads' is missing")
        store = cls()
        for key, text in threads.items():
            store._threads[key] = ChatThread(MemoryLog(StateLog.from_json_lines(text)))
        return store

    def __reduce__(self) -> tuple[Callable[[dict[str, Any]], StateDiffChatStore], tuple[Any]]:
        return type(self).from_dict, (self.to_dict(),)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> StateDiffChatStore:
        return type(self).from_dict(self.to_dict())

    def _thread(self, key: str) -> ChatThread:
        with self._lock:
            if key not in self._threads:
                log = MemoryLog() if self.path is None else SqliteLog(self.path, key)
                self._threads[key] = ChatThread(log)
            return self._threads[key]

    def _known(self, key: str) -> bool:
        return self.path is not None or key in self._threads

    async def _run(self, work: Callable[[], _T]) -> _T:
        return work() if self.path is None else await in_thread(work)


def dump_store(chat_store: BaseChatStore) -> dict[str, Any]:
    """A chat store as plain JSON; the stock serializer of `SimpleChatStore` fails with current
    pydantic versions."""
    if isinstance(chat_store, SimpleChatStore):
        store = {
            key: [message.model_dump(mode="json") for message in messages]
            for key, messages in chat_store.store.items()
        }
        return {"store": store, "class_name": chat_store.class_name()}
    return chat_store.to_dict()


def load_store(data: Mapping[str, Any], key: str) -> BaseChatStore:
    """The chat store of a stored memory, in our form or in one of the stock classes'."""
    if "chat_history" in data:
        store = StateDiffChatStore()
        store.set_messages(key, [ChatMessage.model_validate(m) for m in data["chat_history"]])
        return store
    stored = data["chat_store"]
    if stored.get("class_name") == StateDiffChatStore.class_name():
        return StateDiffChatStore.from_dict(stored)
    return load_chat_store(dict(stored))

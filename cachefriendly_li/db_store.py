"""`StateDiffDBChatStore`: the chat store of `Memory`, as state diffs in memory or in SQLite."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import Field, PrivateAttr, model_serializer
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from cachefriendly.errors import RequestError
from cachefriendly.state import (
    MemoryLog,
    SessionLog,
    SqliteLog,
    StateDiff,
    StateLog,
    session_names,
)
from cachefriendly_li import chat_store_changes as changes
from cachefriendly_li.chat_store_codec import chat_of, note_of
from cachefriendly_li.store_thread import in_thread

__all__ = ["StateDiffDBChatStore", "StoredMessage"]

_T = TypeVar("_T")

_FILES_READ = 256
"""Conversations of a file whose diffs are kept at hand; others are read again when asked for."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message, the number it keeps for good, and what is noted beside it."""

    seq: int
    chat: ChatMessage
    note: Mapping[str, Any]


_TABLE = "llama_index_memory"
_APART = "\x1f"
"""Between the name of another table and a key, in the name of a session."""


class StateDiffDBChatStore(AsyncDBChatStore):
    """`SQLAlchemyChatStore` on state diffs: a turn costs the bytes of its own messages.

    In memory, or with ``path`` in an SQLite file that any number of processes may share; each
    change is stored whole or not at all. One ``table_name`` knows nothing of the conversations of
    another; with the default one the file's sessions are the keys. Archiving, deleting and setting
    are diffs too, and `log` reads every earlier point. Messages come back equal, as copies.

    The methods are coroutines, as the contract has them; files are read and written in a thread.
    Code without an event loop may use the same file through `StateDiffChatStore(path)`.

    Raises:
        StateError: by the methods: the file cannot be read or written.
    """

    path: str | None = Field(default=None, description="The SQLite file; None: in memory.")
    table_name: str = Field(default=_TABLE, description="Conversations of another are apart.")

    _logs: OrderedDict[str, SessionLog] = PrivateAttr(default_factory=OrderedDict)
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    def __init__(self, path: str | Path | None = None, *, table_name: str = _TABLE) -> None:
        values: dict[str, Any] = {
            "path": None if path is None else str(path),
            "table_name": table_name,
        }
        super().__init__(**values)
        if path is not None:
            self.path = str(SqliteLog(path, "cachefriendly").path)  # refuses what cannot be used

    @classmethod
    def class_name(cls) -> str:
        return "StateDiffDBChatStore"

    def log(self, key: str) -> StateLog:
        """The diffs of a conversation so far; a copy."""
        return self._read(key)

    # -- the contract -------------------------------------------------------------------------

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        first = offset or 0
        stop = None if limit is None else first + limit
        return await self._run(
            lambda: [chat_of(entry) for entry in self._entries(key, status)[first:stop]]
        )

    async def count_messages(
        self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE
    ) -> int:
        return await self._run(lambda: len(self._entries(key, status)))

    async def add_message(
        self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        await self.add_messages(key, [message], status)

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """All of them, or none when one cannot be stored."""
        await self._write(key, lambda log: changes.add(log, messages, status))

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Replaces archived messages too; what the conversation already begins with is kept."""
        await self._write(key, lambda log: changes.replace_all(log, messages, status))

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """By its place among all messages of the conversation, archived ones included."""
        return await self._write(key, lambda log: changes.delete_at(log, idx))

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        await self._write(key, lambda log: changes.delete(log, status))

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        return await self._write(key, lambda log: changes.take(log, n, log.remove_message))

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        return await self._write(key, lambda log: changes.take(log, n, log.archive_message))

    async def get_keys(self) -> list[str]:
        return await self._run(self._names)

    # -- what `Memory` needs beside it ----------------------------------------------------------

    async def stored(self, key: str) -> list[StoredMessage]:
        """The active messages with their numbers and notes."""
        return await self._run(
            lambda: [
                StoredMessage(entry.seq, chat_of(entry), note_of(entry))
                for entry in self._entries(key)
            ]
        )

    async def note(self, key: str, seq: int, note: Mapping[str, Any]) -> None:
        """Put ``note`` beside the active message ``seq``; nothing when it is gone."""
        await self._write(key, lambda log: changes.note(log, seq, note))

    async def edit(self, key: str, seq: int, chat: ChatMessage) -> None:
        """Another text for the active message ``seq``, its note kept."""
        await self._write(key, lambda log: changes.edit(log, seq, chat))

    async def drop(self, key: str, seq: int) -> None:
        """Forget the active message ``seq``; nothing when it is gone."""
        await self._write(key, lambda log: changes.drop(log, seq))

    async def archive_until(self, key: str, seq: int) -> list[ChatMessage]:
        """Archive the active messages up to number ``seq``; those that it archived itself.

        Of two processes that do so at the same time, one archives and the other gets none.
        """

        def archive(log: StateLog) -> list[ChatMessage]:
            due = sum(entry.seq <= seq for entry in log.entries)
            return changes.take(log, due, log.archive_message)

        return await self._write(key, archive)

    # -- logs ---------------------------------------------------------------------------------

    def _log(self, key: str) -> SessionLog:
        with self._lock:
            if key not in self._logs:
                self._logs[key] = (
                    SqliteLog(self.path, self._session(key)) if self.path else MemoryLog()
                )
                if self.path and len(self._logs) > _FILES_READ:
                    self._logs.popitem(last=False)
            self._logs.move_to_end(key)
            return self._logs[key]

    def _read(self, key: str) -> StateLog:
        known = self.path is not None or key in self._logs
        return self._log(key).read() if known else StateLog()

    def _entries(
        self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE
    ) -> Sequence[StateDiff]:
        log = self._read(key)
        return changes.entries(log, status)

    def _session(self, key: str) -> str:
        return key if self.table_name == _TABLE else f"{self.table_name}{_APART}{key}"

    def _names(self) -> list[str]:
        if self.path is None:
            return [key for key in self._logs if self._entries(key, None)]
        mine = self._session("")
        names = [name for name in session_names(self.path) if name.startswith(mine)]
        return [key for key in (name.removeprefix(mine) for name in names) if _APART not in key]

    async def _run(self, work: Callable[[], _T]) -> _T:
        return work() if self.path is None else await in_thread(work)

    async def _write(self, key: str, change: Callable[[StateLog], _T]) -> _T:
        return await self._run(lambda: self._log(key).append(change))

    # -- as JSON ------------------------------------------------------------------------------

    def to_dict(self, *, only: str | None = None) -> dict[str, Any]:
        """A file by its path, in memory the diffs themselves; ``only`` those of one key."""
        data = {"class_name": self.class_name(), "path": self.path, "table_name": self.table_name}
        if self.path is not None:
            return data
        keys = list(self._logs) if only is None else [only]
        return {**data, "logs": {key: self._read(key).to_json_lines() for key in keys}}

    @model_serializer(mode="plain")
    def _dump(self) -> dict[str, Any]:
        return self.to_dict()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StateDiffDBChatStore:
        """Inverse of `to_dict`.

        Raises:
            RequestError: the data was not written by this class, or a log is torn.
        """
        if data.get("class_name") != cls.class_name():
            raise RequestError(f"not a {cls.class_name()}: class_name={data.get('class_name')!r}")
        store = cls(data.get("path"), table_name=data.get("table_name", _TABLE))
        for key, text in (data.get("logs") or {}).items():
            store._logs[key] = MemoryLog(StateLog.from_json_lines(text))
        return store

    def __reduce__(self) -> Any:
        return type(self).from_dict, (self.to_dict(),)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> StateDiffDBChatStore:
        return type(self).from_dict(self.to_dict())

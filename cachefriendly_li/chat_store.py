"""A LlamaIndex chat store that keeps diffs: one `StateLog` per conversation, plain JSON outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr, SerializationInfo, model_serializer
from llama_index.core.storage.chat_store import BaseChatStore
from pydantic import SerializerFunctionWrapHandler

from cachefriendly.errors import RequestError
from cachefriendly.state import StateLog
from cachefriendly_li.convert import message_from_llama_index, message_to_llama_index

__all__ = ["StateDiffChatStore"]


class _Thread:
    """One conversation: the log, and the live messages handed out.

    LlamaIndex agents edit a message they got from memory in place and expect to see the edit
    again, so messages are handed out by reference; `sync` records such edits as diffs.
    """

    def __init__(self, log: StateLog | None = None, kept: Mapping[str, Any] | None = None) -> None:
        self._log = log if log is not None else StateLog()
        kept = kept or {}
        self.messages = [
            ChatMessage.model_validate(kept[str(index)])
            if str(index) in kept
            else message_to_llama_index(message)
            for index, message in enumerate(self._log.messages)
        ]

    @property
    def log(self) -> StateLog:
        self.sync()
        return self._log

    def sync(self, first: int = 0) -> None:
        known = self._log.messages
        for index in range(max(first, 0), len(self.messages)):
            message = message_from_llama_index(self.messages[index], index)
            if message != known[index]:
                self._log.edit_message(index, message)

    def add(self, message: ChatMessage) -> None:
        self.sync(len(self.messages) - 1)
        self._log.add_message(message_from_llama_index(message, len(self.messages)))
        self.messages.append(message)

    def remove(self, index: int) -> ChatMessage:
        self.sync()
        self._log.remove_message(index)
        return self.messages.pop(index)

    def replace(self, messages: Sequence[ChatMessage]) -> None:
        """Make the conversation these messages; what it already begins with costs no diff."""
        for index, message in enumerate(messages):
            message_from_llama_index(message, index)  # refuse before the log is touched
        self.sync()
        same = _common(self.messages, messages)
        if same == 0 and self.messages:
            self._log.clear()
            self.messages = []
        while len(self.messages) > same:
            self.remove(len(self.messages) - 1)
        self.messages[:] = messages[:same]
        for message in messages[same:]:
            self.add(message)

    def to_dict(self) -> dict[str, Any]:
        """The log, and whole those messages that hold more than the engine's own `Message` does."""
        kept = {
            str(index): chat.model_dump(mode="json")
            for index, chat in enumerate(self.messages)
            if message_to_llama_index(message_from_llama_index(chat, index)) != chat
        }
        return {"log": self.log.to_json_lines(), "kept": kept}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> _Thread:
        return cls(StateLog.from_json_lines(data["log"]), data.get("kept"))


class StateDiffChatStore(BaseChatStore):
    """`SimpleChatStore` on state diffs: edits, removals and resets are appended, never lost.

    `to_dict`, `from_dict`, `to_json` and `from_json` use plain JSON; pickling goes through them.
    A message the engine cannot read (an image) is refused when it is put in.
    """

    _threads: dict[str, _Thread] = PrivateAttr(default_factory=dict)

    @classmethod
    def class_name(cls) -> str:
        return "StateDiffChatStore"

    def log(self, key: str) -> StateLog:
        """The diffs of one conversation, edits made in place included."""
        return self._thread(key).log

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        self._thread(key).replace(messages)

    def get_messages(self, key: str) -> list[ChatMessage]:
        return list(self._threads[key].messages) if key in self._threads else []

    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        thread = self._thread(key)
        if idx is None or idx >= len(thread.messages):
            thread.add(message)
        else:
            messages = list(thread.messages)
            messages.insert(idx, message)
            thread.replace(messages)

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        if key not in self._threads:
            return None
        messages = self.get_messages(key)
        self._threads[key].replace([])
        return messages

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        inside = key in self._threads and 0 <= idx < len(self._threads[key].messages)
        return self._threads[key].remove(idx) if inside else None

    def delete_last_message(self, key: str) -> ChatMessage | None:
        return self.delete_message(key, len(self.get_messages(key)) - 1)

    def get_keys(self) -> list[str]:
        return list(self._threads)

    # Nothing here waits, so the async twins need no thread.

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        self.set_messages(key, messages)

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        return self.get_messages(key)

    async def async_add_message(self, key: str, message: ChatMessage) -> None:
        self.add_message(key, message)

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        return self.delete_messages(key)

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        return self.delete_message(key, idx)

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        return self.delete_last_message(key)

    async def aget_keys(self) -> list[str]:
        return self.get_keys()

    @model_serializer(mode="wrap")
    def custom_model_dump(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        threads = {key: thread.to_dict() for key, thread in self._threads.items()}
        return {"threads": threads, "class_name": self.class_name()}

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> StateDiffChatStore:
        """Inverse of `to_dict`.

        Raises:
            RequestError: the data was not written by this class, or a log is torn.
        """
        threads = data.get("threads")
        if not isinstance(threads, Mapping):
            raise RequestError("not a StateDiffChatStore: the key 'threads' is missing")
        store = cls()
        store._threads = {key: _Thread.from_dict(value) for key, value in threads.items()}
        return store

    def __reduce__(self) -> tuple[Callable[[dict[str, Any]], StateDiffChatStore], tuple[Any]]:
        return type(self).from_dict, (self.to_dict(),)

    def _thread(self, key: str) -> _Thread:
        return self._threads.setdefault(key, _Thread())


def _common(old: Sequence[ChatMessage], new: Sequence[ChatMessage]) -> int:
    """Length of the common beginning."""
    count = 0
    for before, after in zip(old, new, strict=False):
        if before is not after and before != after:
            break
        count += 1
    return count

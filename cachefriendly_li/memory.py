"""`ChatMemoryBuffer` on state diffs: serialisable through `Context`, trimmed rarely."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock
from llama_index.core.bridge.pydantic import PrivateAttr, field_serializer
from llama_index.core.llms.llm import LLM
from llama_index.core.memory import ChatMemoryBuffer as StockChatMemoryBuffer
from llama_index.core.memory.chat_memory_buffer import (
    DEFAULT_TOKEN_LIMIT,
    DEFAULT_TOKEN_LIMIT_RATIO,
)
from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY
from llama_index.core.storage.chat_store import BaseChatStore, SimpleChatStore
from llama_index.core.storage.chat_store.loading import load_chat_store
from llama_index.core.utils import get_tokenizer

from cachefriendly.state import StateLog
from cachefriendly_li.chat_store import StateDiffChatStore
from cachefriendly_li.llm import CacheFriendlyLLM

__all__ = ["ChatMemoryBuffer", "default_memory", "history_room"]

# A trim costs the prefill of all that is kept, so one must last for many turns. Below this many
# tokens that prefill is too small to matter and every message that fits is kept.
_SMALL_WINDOW: Final = 64
_FOLLOWERS: Final = (MessageRole.TOOL, MessageRole.FUNCTION, MessageRole.ASSISTANT)


class ChatMemoryBuffer(StockChatMemoryBuffer):
    """LlamaIndex's `ChatMemoryBuffer` with the same arguments.

    Messages are stored as state diffs and come back with their handles and tool calls. `to_dict`
    and `to_string` write plain JSON, so that `Context.to_dict` keeps the history.

    When the history outgrows ``token_limit``, `get` drops old turns until half of the limit is
    used and then keeps its place until the limit is reached again. Only whole turns are dropped:
    a newest turn that is too long by itself is returned whole, for the LLM to refuse.
    """

    _counts: dict[str, int] = PrivateAttr(default_factory=dict)

    @classmethod
    def from_defaults(
        cls,
        chat_history: list[ChatMessage] | None = None,
        llm: LLM | None = None,
        chat_store: BaseChatStore | None = None,
        chat_store_key: str = DEFAULT_CHAT_STORE_KEY,
        token_limit: int | None = None,
        tokenizer_fn: Callable[[str], list[Any]] | None = None,
        **kwargs: Any,
    ) -> ChatMemoryBuffer:
        """Create a memory; with an ``llm`` its tokenizer and context window set the limit."""
        if kwargs:
            raise ValueError(f"Unexpected kwargs: {kwargs}")
        if token_limit is None and llm is not None:
            token_limit = int(llm.metadata.context_window * DEFAULT_TOKEN_LIMIT_RATIO)
        if chat_store is None:
            chat_store = StateDiffChatStore()
        if chat_history is not None:
            chat_store.set_messages(chat_store_key, chat_history)
        return cls(
            token_limit=DEFAULT_TOKEN_LIMIT if token_limit is None else token_limit,
            tokenizer_fn=tokenizer_fn or _tokenizer_of(llm),
            chat_store=chat_store,
            chat_store_key=chat_store_key,
        )

    @property
    def log(self) -> StateLog | None:
        """The diffs; None when the memory was given a chat store of another kind."""
        store = self.chat_store
        return store.log(self.chat_store_key) if isinstance(store, StateDiffChatStore) else None

    def get(
        self, input: str | None = None, initial_token_count: int = 0, **kwargs: Any
    ) -> list[ChatMessage]:
        """The newest turns that fit; ``initial_token_count`` is what the prefix already takes."""
        if initial_token_count > self.token_limit:
            raise ValueError("Initial token count exceeds token limit")
        messages = self.get_all()
        counts = [self._count(message) for message in messages]
        starts = [message.role not in _FOLLOWERS for message in messages]
        return messages[_window_start(counts, starts, self.token_limit - initial_token_count) :]

    def reset(self) -> None:
        """Forget the messages; the log keeps that they were forgotten."""
        self._counts.clear()
        super().reset()

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        return self.model_dump(mode="json", **kwargs)

    def to_string(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> ChatMemoryBuffer:
        """Inverse of `to_dict`; reads what the stock class wrote, too.

        The tokenizer is not stored: pass ``llm=`` or ``tokenizer_fn=`` to count with it again.
        """
        key = data.get("chat_store_key", DEFAULT_CHAT_STORE_KEY)
        if "chat_history" in data:
            store: BaseChatStore = StateDiffChatStore()
            store.set_messages(key, [ChatMessage.model_validate(m) for m in data["chat_history"]])
        else:
            store = _load_store(data["chat_store"])
        return cls(
            token_limit=data["token_limit"],
            tokenizer_fn=kwargs.get("tokenizer_fn") or _tokenizer_of(kwargs.get("llm")),
            chat_store=store,
            chat_store_key=key,
        )

    @classmethod
    def from_string(cls, json_str: str) -> ChatMemoryBuffer:
        return cls.from_dict(json.loads(json_str))

    def __reduce__(self) -> tuple[Callable[[dict[str, Any]], ChatMemoryBuffer], tuple[Any]]:
        return type(self).from_dict, (self.to_dict(),)

    @field_serializer("chat_store")
    def serialize_courses_in_order(self, chat_store: BaseChatStore) -> dict[str, Any]:
        # The stock serializer of SimpleChatStore fails with current pydantic versions.
        if isinstance(chat_store, SimpleChatStore):
            store = {
                key: [message.model_dump(mode="json") for message in messages]
                for key, messages in chat_store.store.items()
            }
            return {"store": store, "class_name": chat_store.class_name()}
        return chat_store.to_dict()

    def _count(self, message: ChatMessage) -> int:
        text = _counted_text(message)
        if text not in self._counts:
            self._counts[text] = len(self.tokenizer_fn(text))
        return self._counts[text]


def default_memory(llm: LLM) -> ChatMemoryBuffer:
    """What an agent remembers with when it is given no memory: all that fits beside a reply.

    Asks the LLM for its window, which may read files: call it in a thread from a coroutine.
    """
    return ChatMemoryBuffer.from_defaults(llm=llm, token_limit=history_room(llm))


def history_room(llm: LLM) -> int:
    """Tokens of history that leave room for the reply and for what the template adds to turns."""
    metadata = llm.metadata
    ahead = metadata.context_window - max(256, metadata.num_output)
    return max(1, min(ahead, metadata.context_window * 3 // 4))


def _window_start(counts: Sequence[int], starts: Sequence[bool], limit: int) -> int:
    """Index of the first message kept: a function of the history alone, stable while it grows.

    Walks the history as it was put in. When the window overflows, it moves to the first turn from
    which at most half of the limit is used, or to the newest turn.
    """
    target = limit // 2 if limit >= _SMALL_WINDOW else limit
    start = total = 0
    for index, count in enumerate(counts):
        total += count
        if total > limit:
            start, total = _advance(counts, starts, (start, index), total, target)
    return start


def _advance(
    counts: Sequence[int], starts: Sequence[bool], window: tuple[int, int], total: int, target: int
) -> tuple[int, int]:
    """The next start of a turn in ``window`` (both ends included), and the tokens from there on."""
    first, last = window
    best = first, total
    for index in range(first + 1, last + 1):
        total -= counts[index - 1]
        if starts[index]:
            best = index, total
            if total <= target:
                break
    return best


def _counted_text(message: ChatMessage) -> str:
    """Content and calls: agents store calls whose arguments are longer than any answer."""
    calls = [
        f"{block.tool_name} {json.dumps(block.tool_kwargs, default=str)}"
        for block in message.blocks
        if isinstance(block, ToolCallBlock)
    ]
    return "\n".join([message.content or "", *calls])


def _tokenizer_of(llm: LLM | None) -> Callable[[str], list[Any]]:
    if isinstance(llm, CacheFriendlyLLM):
        return llm.tokenize
    return get_tokenizer()


def _load_store(data: dict[str, Any]) -> BaseChatStore:
    if data.get("class_name") == StateDiffChatStore.class_name():
        return StateDiffChatStore.from_dict(data)
    return load_chat_store(data)

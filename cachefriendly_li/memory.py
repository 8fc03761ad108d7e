"""`ChatMemoryBuffer` on state diffs: serialisable through `Context`, trimmed rarely."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import Field, PrivateAttr, field_serializer
from llama_index.core.llms.llm import LLM
from llama_index.core.memory import ChatMemoryBuffer as StockChatMemoryBuffer
from llama_index.core.memory.chat_memory_buffer import (
    DEFAULT_TOKEN_LIMIT,
    DEFAULT_TOKEN_LIMIT_RATIO,
)
from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY
from llama_index.core.storage.chat_store import BaseChatStore

from cachefriendly.state import StateLog
from cachefriendly_li.chat_store import StateDiffChatStore, dump_store, load_store
from cachefriendly_li.memory_tokens import (
    LIVE_KEY,
    Live,
    MessageCounter,
    Tokenizer,
    is_default,
    tokenizer_of,
)
from cachefriendly_li.memory_window import TRIM_TO, Window, share_of

__all__ = ["ChatMemoryBuffer", "default_memory", "history_room"]

_WINDOW = "window"


class ChatMemoryBuffer(StockChatMemoryBuffer):
    """LlamaIndex's `ChatMemoryBuffer` with the same arguments.

    Messages are stored as state diffs and come back with their handles and tool calls. `to_dict`
    and `to_string` write plain JSON, so that `Context.to_dict` keeps the history.

    When the history outgrows ``token_limit``, `get` drops old turns until half of the limit is
    used (``trim_to``) and then keeps its place until the limit is reached again. Only whole turns
    are dropped: a newest turn that is too long by itself is returned whole, for the LLM to refuse.
    Old turns with retrieved nodes are first cut to their questions, as far as that goes.
    """

    trim_to: float = Field(default=TRIM_TO, gt=0, le=1)

    _counter: MessageCounter = PrivateAttr(default_factory=MessageCounter)
    _live: Live = PrivateAttr(default_factory=Live)
    _window: Window = PrivateAttr(default_factory=Window)

    @classmethod
    def from_defaults(
        cls,
        chat_history: list[ChatMessage] | None = None,
        llm: LLM | None = None,
        chat_store: BaseChatStore | None = None,
        chat_store_key: str = DEFAULT_CHAT_STORE_KEY,
        token_limit: int | None = None,
        tokenizer_fn: Callable[[str], list[Any]] | None = None,
        trim_to: float = TRIM_TO,
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
            tokenizer_fn=tokenizer_fn or tokenizer_of(llm),
            chat_store=chat_store,
            chat_store_key=chat_store_key,
            trim_to=trim_to,
        )

    @property
    def log(self) -> StateLog | None:
        """The diffs; None when the memory was given a chat store of another kind."""
        store = self.chat_store
        return store.log(self.chat_store_key) if isinstance(store, StateDiffChatStore) else None

    def use_llm(self, llm: LLM) -> None:
        """Count with this LLM's tokenizer, unless the memory was given one: after JSON it has
        none where it comes back in another process."""
        if is_default(self.tokenizer_fn):
            self.tokenizer_fn = tokenizer_of(llm)

    def get(
        self, input: str | None = None, initial_token_count: int = 0, **kwargs: Any
    ) -> list[ChatMessage]:
        """The newest turns that fit; ``initial_token_count`` is what the prefix already takes."""
        if initial_token_count > self.token_limit:
            raise ValueError("Initial token count exceeds token limit")
        messages = self.get_all()
        limit = self.token_limit - initial_token_count
        self._window, held = self._window.over(messages).fit(
            messages, self._count, limit, share_of(limit, self.trim_to)
        )
        return held

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        own = None if is_default(self.tokenizer_fn) else self.tokenizer_fn
        self._live = self._live.holding(own)
        data: dict[str, Any] = self.model_dump(mode="json", **kwargs)
        return {**data, _WINDOW: asdict(self._window), LIVE_KEY: self._live.name}

    def to_string(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> ChatMemoryBuffer:
        """Inverse of `to_dict`; reads what the stock class wrote, too.

        The tokenizer is not stored: within one process it is found again, in another one pass
        ``llm=`` or ``tokenizer_fn=``, or call `use_llm`.
        """
        key = data.get("chat_store_key", DEFAULT_CHAT_STORE_KEY)
        live = Live.named(data.get(LIVE_KEY))
        given: Tokenizer | None = kwargs.get("tokenizer_fn") or live.tokenizer
        memory = cls(
            token_limit=data["token_limit"],
            tokenizer_fn=given or tokenizer_of(kwargs.get("llm")),
            chat_store=load_store(data, key),
            chat_store_key=key,
            trim_to=data.get("trim_to", TRIM_TO),
        )
        memory._live = live
        memory._window = Window(**data.get(_WINDOW, {}))
        return memory

    @classmethod
    def from_string(cls, json_str: str, **kwargs: Any) -> ChatMemoryBuffer:
        return cls.from_dict(json.loads(json_str), **kwargs)

    def __reduce__(self) -> tuple[Callable[[dict[str, Any]], ChatMemoryBuffer], tuple[Any]]:
        return type(self).from_dict, (self.to_dict(),)

    def _count(self, messages: Sequence[ChatMessage]) -> list[int]:
        return self._counter.messages(messages, self.tokenizer_fn)

    @field_serializer("chat_store")
    def serialize_courses_in_order(self, chat_store: BaseChatStore) -> dict[str, Any]:
        return dump_store(chat_store)


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

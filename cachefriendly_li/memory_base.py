"""What the two buffers share: diffs under their messages, rare trims, and their form as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import Field, PrivateAttr, field_serializer, field_validator
from llama_index.core.llms.llm import LLM
from llama_index.core.memory import BaseMemory
from llama_index.core.memory.chat_memory_buffer import DEFAULT_TOKEN_LIMIT_RATIO
from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY
from llama_index.core.storage.chat_store import BaseChatStore

from cachefriendly.state import StateLog
from cachefriendly.window import TRIM_TO
from cachefriendly_li.chat_store import StateDiffChatStore, dump_store, load_store
from cachefriendly_li.memory_live import LIVE_KEY, Live
from cachefriendly_li.memory_tokens import MessageCounter, Tokenizer, is_default, tokenizer_of

__all__ = ["StateDiffBuffer", "limit_of", "store_with"]


class StateDiffBuffer(BaseMemory):
    """Stands before one of LlamaIndex's buffers, whose fields these are.

    Tokenizer and LLM are not stored: within one process a copy out of JSON finds them again, in
    another one `from_dict` is given ``llm=`` (and ``tokenizer_fn=``), or `use_llm` is called.
    """

    if TYPE_CHECKING:
        token_limit: int
        tokenizer_fn: Tokenizer
        chat_store: BaseChatStore
        chat_store_key: str

    trim_to: float = Field(default=TRIM_TO, gt=0, le=1)

    _counter: MessageCounter = PrivateAttr(default_factory=MessageCounter)
    _live: Live = PrivateAttr(default_factory=Live)

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

    def _room_behind(self, prefix: int) -> int:
        """Tokens left for the history behind a prefix of so many.

        Raises:
            ValueError: the prefix alone is more than the memory may hold.
        """
        if prefix > self.token_limit:
            raise ValueError(
                "Initial token count exceeds token limit: what stands before the history (system "
                f"prompt, prefix messages) takes {prefix} tokens, token_limit={self.token_limit}; "
                "shorten it, or give memory= with a larger token_limit that the window has room for"
            )
        return self.token_limit - prefix

    def _counts(self, messages: Sequence[ChatMessage]) -> list[int]:
        return self._counter.messages(messages, self.tokenizer_fn)

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        own = None if is_default(self.tokenizer_fn) else self.tokenizer_fn
        self._live = self._live.holding(own, llm=getattr(self, "llm", None))
        data: dict[str, Any] = self.model_dump(mode="json", exclude={"llm"}, **kwargs)
        return {**data, LIVE_KEY: self._live.name}

    def to_string(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        """Inverse of `to_dict`; reads what the stock class wrote, too."""
        key = data.get("chat_store_key", DEFAULT_CHAT_STORE_KEY)
        live = Live.named(data.get(LIVE_KEY))
        given: Tokenizer | None = kwargs.get("tokenizer_fn") or live.tokenizer
        memory = cls(
            token_limit=data["token_limit"],
            tokenizer_fn=given or tokenizer_of(kwargs.get("llm") or live.llm),
            chat_store=load_store(data, key),
            chat_store_key=key,
            trim_to=data.get("trim_to", TRIM_TO),
        )
        memory._live = live
        return memory

    @classmethod
    def from_string(cls, json_str: str, **kwargs: Any) -> Self:
        return cls.from_dict(json.loads(json_str), **kwargs)

    def __reduce__(self) -> tuple[Callable[[dict[str, Any]], Self], tuple[Any]]:
        return type(self).from_dict, (self.to_dict(),)

    @field_validator("chat_store", mode="before", check_fields=False)
    @classmethod
    def _store_from_json(cls, value: Any) -> Any:
        """A memory inside another model, such as a workflow's event, comes back without
        `from_dict`."""
        return load_store({"chat_store": value}, "") if isinstance(value, Mapping) else value

    @field_serializer("chat_store", check_fields=False)
    def serialize_courses_in_order(self, chat_store: BaseChatStore) -> dict[str, Any]:
        return dump_store(chat_store)


def limit_of(llm: LLM | None, given: int | None, default: int) -> int:
    """Tokens that a buffer may hold: what is given, else LlamaIndex's share of the LLM's window."""
    if given is None and llm is not None:
        given = int(llm.metadata.context_window * DEFAULT_TOKEN_LIMIT_RATIO)
    return default if given is None else given


def store_with(
    store: BaseChatStore | None, key: str, history: list[ChatMessage] | None
) -> BaseChatStore:
    """A buffer's chat store, ours if none is given; with ``history``, if there is one."""
    if store is None:
        store = StateDiffChatStore()
    if history is not None:
        store.set_messages(key, history)
    return store

"""`ChatMemoryBuffer` on state diffs: serialisable through `Context`, trimmed rarely."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Self

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms.llm import LLM
from llama_index.core.memory import ChatMemoryBuffer as StockChatMemoryBuffer
from llama_index.core.memory.chat_memory_buffer import DEFAULT_TOKEN_LIMIT
from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY
from llama_index.core.storage.chat_store import BaseChatStore

from cachefriendly.window import TRIM_TO, share_of
from cachefriendly_li.memory_base import StateDiffBuffer, limit_of, store_with
from cachefriendly_li.memory_tokens import tokenizer_of
from cachefriendly_li.memory_window import Window
from cachefriendly_li.nodes import as_sent

__all__ = ["ChatMemoryBuffer", "default_memory", "history_room"]

_WINDOW = "window"


class ChatMemoryBuffer(StateDiffBuffer, StockChatMemoryBuffer):
    """LlamaIndex's `ChatMemoryBuffer` with the same arguments.

    Messages are stored as state diffs and come back with their handles and tool calls. `to_dict`
    and `to_string` write plain JSON, so that `Context.to_dict` keeps the history.

    When the history outgrows ``token_limit``, `get` drops old turns until half of the limit is
    used (``trim_to``) and then keeps its place until the limit is reached again. Only whole turns
    are dropped: a newest turn that is too long by itself is returned whole, for the LLM to refuse.
    Old turns with retrieved nodes are first cut to their questions, as far as that goes.
    """

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
        return cls(
            token_limit=limit_of(llm, token_limit, DEFAULT_TOKEN_LIMIT),
            tokenizer_fn=tokenizer_fn or tokenizer_of(llm),
            chat_store=store_with(chat_store, chat_store_key, chat_history),
            chat_store_key=chat_store_key,
            trim_to=trim_to,
        )

    def get(
        self, input: str | None = None, initial_token_count: int = 0, **kwargs: Any
    ) -> list[ChatMessage]:
        """The newest turns that fit; ``initial_token_count`` is what the prefix already takes."""
        limit = self._room_behind(initial_token_count)
        messages = self.get_all()
        self._window, held = self._window.over(messages).fit(
            messages, self._counts, limit, share_of(limit, self.trim_to)
        )
        return held

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().to_dict(**kwargs), _WINDOW: asdict(self._window)}

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        memory = super().from_dict(data, **kwargs)
        memory._window = Window(**data.get(_WINDOW, {}))
        return memory


def default_memory(llm: LLM, history: Sequence[ChatMessage] = ()) -> ChatMemoryBuffer:
    """What agents and chat engines that are given no memory remember with: all that fits beside
    a reply, after ``history``, whose messages may be those that a chat engine showed.

    Asks the LLM for its window, which may read files: call it in a thread from a coroutine.
    """
    sent = [as_sent(message) for message in history]
    return ChatMemoryBuffer.from_defaults(sent or None, llm=llm, token_limit=history_room(llm))


def history_room(llm: LLM) -> int:
    """Tokens of history that leave room for the reply and for what the template adds to turns."""
    metadata = llm.metadata
    ahead = metadata.context_window - max(256, metadata.num_output)
    return max(1, min(ahead, metadata.context_window * 3 // 4))

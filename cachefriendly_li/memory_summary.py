"""`ChatSummaryMemoryBuffer` on state diffs: a summary that stays, and the newest turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.llms.llm import LLM
from llama_index.core.memory import ChatSummaryMemoryBuffer as StockChatSummaryMemoryBuffer
from llama_index.core.memory.chat_summary_memory_buffer import (
    DEFAULT_TOKEN_LIMIT,
    SUMMARIZE_PROMPT,
)
from llama_index.core.memory.types import DEFAULT_CHAT_STORE_KEY
from llama_index.core.storage.chat_store import BaseChatStore

from cachefriendly.errors import ContextOverflow
from cachefriendly.window import TRIM_TO, share_of, window_start
from cachefriendly_li.chat_store import StateDiffChatStore
from cachefriendly_li.memory_base import StateDiffBuffer, limit_of, store_with
from cachefriendly_li.memory_fork import INSTRUCTION, fork_of
from cachefriendly_li.memory_tokens import tokenizer_of
from cachefriendly_li.memory_window import begins_turn

__all__ = ["ChatSummaryMemoryBuffer"]


class ChatSummaryMemoryBuffer(StateDiffBuffer, StockChatSummaryMemoryBuffer):
    """LlamaIndex's `ChatSummaryMemoryBuffer` with the same arguments.

    When the history outgrows ``token_limit``, the oldest turns become a summary until half of the
    limit is used (``trim_to``). The summary then stays as it is, at the start of the history,
    until the limit is reached again; the stock class writes a new one at every turn. Without an
    ``llm`` the oldest turns are dropped. The log keeps them in either case.

    With a `CacheFriendlyLLM` the summary call is a fork of the live conversation: it reads the
    messages themselves, whose keys are held, and only the instruction is new. Where that cannot
    be (other LLM, other process, no room in the window) it is made as LlamaIndex makes it. A
    ``summarize_prompt`` of your own is the instruction in both forms.
    """

    @classmethod
    def from_defaults(  # noqa: PLR0913, PLR0917 - the signature is LlamaIndex's
        cls,
        chat_history: list[ChatMessage] | None = None,
        llm: LLM | None = None,
        chat_store: BaseChatStore | None = None,
        chat_store_key: str = DEFAULT_CHAT_STORE_KEY,
        token_limit: int | None = None,
        tokenizer_fn: Callable[[str], list[Any]] | None = None,
        summarize_prompt: str | None = None,
        count_initial_tokens: bool = False,
        trim_to: float = TRIM_TO,
        **kwargs: Any,
    ) -> ChatSummaryMemoryBuffer:
        """Create a memory; with an ``llm`` its tokenizer and context window set the limit."""
        if kwargs:
            raise ValueError(f"Unexpected keyword arguments: {kwargs}")
        return cls(
            llm=llm,
            token_limit=limit_of(llm, token_limit, DEFAULT_TOKEN_LIMIT),
            tokenizer_fn=tokenizer_fn or tokenizer_of(llm),
            summarize_prompt=summarize_prompt or SUMMARIZE_PROMPT,
            chat_store=store_with(chat_store, chat_store_key, chat_history),
            chat_store_key=chat_store_key,
            count_initial_tokens=count_initial_tokens,
            trim_to=trim_to,
        )

    def use_llm(self, llm: LLM) -> None:
        """Summarise and count with this LLM, unless the memory was given another: after JSON it
        has none where it comes back in another process."""
        self.llm = self.llm or llm
        super().use_llm(llm)

    def get(
        self, input: str | None = None, initial_token_count: int = 0, **kwargs: Any
    ) -> list[ChatMessage]:
        """The history; first, when it is too long, its oldest turns become a summary.

        A model call that fails costs no message. ``initial_token_count`` is what the prefix
        takes; it counts only with ``count_initial_tokens``.
        """
        room = self._room_behind(initial_token_count if self.count_initial_tokens else 0)
        messages = self.get_all()
        start = self._kept_from(messages, room)
        oldest = messages[:start]
        if not any(message.role != MessageRole.SYSTEM for message in oldest):
            return messages  # nothing new to say of a summary alone
        summary = None if self.llm is None else self._summary_of(self.llm, messages, start)
        self._replace(oldest, summary)
        return self.get_all()

    def _kept_from(self, messages: Sequence[ChatMessage], limit: int) -> int:
        """Index of the first message that is sent as it is."""
        counts = self._counts(messages)
        starts = [begins_turn(message) for message in messages]
        self._token_count = sum(counts)
        if sum(counts) <= limit:
            return 0
        return window_start(counts, starts, limit, share_of(limit, self.trim_to))

    def _summary_of(self, llm: LLM, messages: list[ChatMessage], count: int) -> ChatMessage:
        own, oldest = self.summarize_prompt, messages[:count]
        instruction = own if own and own != SUMMARIZE_PROMPT else INSTRUCTION
        fork = fork_of(llm, messages, count, instruction)
        if fork is None:
            return self._summarize_oldest_chat_history(oldest)
        try:
            reply = llm.chat(fork.messages, **fork.options).message
        except ContextOverflow:
            return self._summarize_oldest_chat_history(oldest)
        return ChatMessage(role=MessageRole.SYSTEM, content=reply.content)

    def _replace(self, oldest: list[ChatMessage], summary: ChatMessage | None) -> None:
        """While the summary was written, others may have put messages in, or been faster."""
        store, key = self.chat_store, self.chat_store_key
        if isinstance(store, StateDiffChatStore):
            store.summarize(key, oldest, summary)
            return
        messages = self.get_all()
        if messages[: len(oldest)] == oldest:
            store.set_messages(key, [*([summary] if summary else []), *messages[len(oldest) :]])

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        memory = super().from_dict(data, **kwargs)
        memory.llm = kwargs.get("llm") or memory._live.llm
        memory.summarize_prompt = data.get("summarize_prompt") or SUMMARIZE_PROMPT
        memory.count_initial_tokens = data.get("count_initial_tokens", False)
        return memory

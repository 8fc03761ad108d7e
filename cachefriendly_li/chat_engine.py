"""`SimpleChatEngine` over a memory whose messages the engine recognises."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.callbacks import trace_method
from llama_index.core.chat_engine import SimpleChatEngine as StockSimpleChatEngine
from llama_index.core.chat_engine.types import AgentChatResponse
from llama_index.core.llms.llm import LLM
from llama_index.core.memory import BaseMemory
from llama_index.core.settings import Settings
from llama_index.core.types import Thread

from cachefriendly_li.chat_stream import LiveChatResponse
from cachefriendly_li.memory import ChatMemoryBuffer

__all__ = ["CacheFriendlyChatEngine", "SimpleChatEngine"]


class SimpleChatEngine(StockSimpleChatEngine):
    """LlamaIndex's `SimpleChatEngine` with the same arguments.

    The system prompt or the prefix messages come first and never change, the history is appended
    to, and replies enter it as they were generated, so a turn prefills the new message only.
    """

    @classmethod
    def from_defaults(
        cls,
        chat_history: list[ChatMessage] | None = None,
        memory: BaseMemory | None = None,
        memory_cls: type[BaseMemory] = ChatMemoryBuffer,
        system_prompt: str | None = None,
        prefix_messages: list[ChatMessage] | None = None,
        llm: LLM | None = None,
        **kwargs: Any,
    ) -> SimpleChatEngine:
        llm = llm or Settings.llm
        if memory is None and issubclass(memory_cls, ChatMemoryBuffer):
            memory = memory_cls.from_defaults(
                chat_history=chat_history, llm=llm, token_limit=_history_room(llm)
            )
        engine = super().from_defaults(
            chat_history=chat_history,
            memory=memory,
            memory_cls=memory_cls,
            system_prompt=system_prompt,
            prefix_messages=prefix_messages,
            llm=llm,
            **kwargs,
        )
        return cast(SimpleChatEngine, engine)

    @trace_method("chat")
    def stream_chat(
        self, message: str, chat_history: list[ChatMessage] | None = None
    ) -> LiveChatResponse:
        messages = self._begin(message, chat_history)
        response = LiveChatResponse(chat_stream=self._llm.stream_chat(messages))
        thread = Thread(target=response.write_response_to_history, args=(self._memory,))
        response.write_response_to_history_thread = thread
        thread.start()
        return response

    @trace_method("chat")
    async def achat(
        self, message: str, chat_history: list[ChatMessage] | None = None
    ) -> AgentChatResponse:
        reply = (await self._llm.achat(await self._abegin(message, chat_history))).message
        await self._memory.aput(reply)
        return AgentChatResponse(response=str(reply.content))

    @trace_method("chat")
    async def astream_chat(
        self, message: str, chat_history: list[ChatMessage] | None = None
    ) -> LiveChatResponse:
        messages = await self._abegin(message, chat_history)
        response = LiveChatResponse(achat_stream=await self._llm.astream_chat(messages))
        response.awrite_response_to_history_task = asyncio.create_task(
            response.awrite_response_to_history(self._memory)
        )
        return response

    def _begin(self, message: str, history: list[ChatMessage] | None) -> list[ChatMessage]:
        """Take the user's message into memory; returns what to send."""
        if history is not None:
            self._memory.set(history)
        self._memory.put(ChatMessage(role=MessageRole.USER, content=message))
        held = self._memory.get(initial_token_count=self._prefix_tokens())
        return [*self._prefix_messages, *held]

    async def _abegin(self, message: str, history: list[ChatMessage] | None) -> list[ChatMessage]:
        if history is not None:
            await self._memory.aset(history)
        await self._memory.aput(ChatMessage(role=MessageRole.USER, content=message))
        # Counting tokens takes time, and the first count loads the tokenizer with its model.
        prefix = await asyncio.to_thread(self._prefix_tokens)
        return [*self._prefix_messages, *await self._memory.aget(initial_token_count=prefix)]

    def _prefix_tokens(self) -> int:
        tokenizer = getattr(self._memory, "tokenizer_fn", None)
        if tokenizer is None:
            return 0
        return len(tokenizer(" ".join(message.content or "" for message in self._prefix_messages)))


CacheFriendlyChatEngine = SimpleChatEngine
"""The name that says what it is for."""


def _history_room(llm: LLM) -> int:
    """Tokens of history that leave room for the reply and for what the template adds to turns."""
    metadata = llm.metadata
    ahead = metadata.context_window - max(256, metadata.num_output)
    return max(1, min(ahead, metadata.context_window * 3 // 4))

"""`SimpleChatEngine` over a memory whose messages the engine recognises."""

from __future__ import annotations

from typing import Any, cast

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.callbacks import trace_method
from llama_index.core.chat_engine import SimpleChatEngine as StockSimpleChatEngine
from llama_index.core.chat_engine.types import AgentChatResponse
from llama_index.core.llms.llm import LLM
from llama_index.core.memory import BaseMemory

from cachefriendly_li.arguments import chosen_llm, warn_ignored_by_engine
from cachefriendly_li.chat_engine_turn import MemoryTurn
from cachefriendly_li.chat_stream import LiveChatResponse
from cachefriendly_li.memory import ChatMemoryBuffer, history_room
from cachefriendly_li.nodes import as_sent, as_shown, user_message

__all__ = ["CacheFriendlyChatEngine", "SimpleChatEngine"]


class SimpleChatEngine(StockSimpleChatEngine):
    """LlamaIndex's `SimpleChatEngine` with the same arguments.

    The system prompt or the prefix messages come first and never change, the history is appended
    to, and replies enter it as they were generated, so a turn prefills the new message only. A
    turn that fails leaves nothing in memory.
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
        llm = chosen_llm(llm, kwargs)
        warn_ignored_by_engine(kwargs, cls.from_defaults)
        chat_history = [as_sent(message) for message in chat_history or []]
        if memory is None and issubclass(memory_cls, ChatMemoryBuffer):
            memory = memory_cls.from_defaults(
                chat_history=chat_history, llm=llm, token_limit=history_room(llm)
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
    def chat(
        self, message: str, chat_history: list[ChatMessage] | None = None
    ) -> AgentChatResponse:
        with self._turn(chat_history) as turn:
            reply = self._llm.chat(turn.begin(user_message(message))).message
            self._memory.put(reply)
        return AgentChatResponse(response=str(reply.content))

    @trace_method("chat")
    def stream_chat(
        self, message: str, chat_history: list[ChatMessage] | None = None
    ) -> LiveChatResponse:
        with self._turn(chat_history) as turn:
            chunks = turn.watch(self._llm.stream_chat(turn.begin(user_message(message))))
        response = LiveChatResponse(chat_stream=chunks)
        response.start(self._memory)
        return response

    @trace_method("chat")
    async def achat(
        self, message: str, chat_history: list[ChatMessage] | None = None
    ) -> AgentChatResponse:
        async with await self._aturn(chat_history) as turn:
            reply = (await self._llm.achat(await turn.abegin(user_message(message)))).message
            await self._memory.aput(reply)
        return AgentChatResponse(response=str(reply.content))

    @trace_method("chat")
    async def astream_chat(
        self, message: str, chat_history: list[ChatMessage] | None = None
    ) -> LiveChatResponse:
        async with await self._aturn(chat_history) as turn:
            messages = await turn.abegin(user_message(message))
            chunks = turn.awatch(await self._llm.astream_chat(messages))
        response = LiveChatResponse(achat_stream=chunks)
        response.astart(self._memory)
        return response

    @property
    def chat_history(self) -> list[ChatMessage]:
        return [as_shown(message) for message in self._memory.get_all()]

    def _turn(self, history: list[ChatMessage] | None) -> MemoryTurn:
        if history is not None:
            self._memory.set([as_sent(message) for message in history])
        return MemoryTurn(self._memory, self._prefix_messages)

    async def _aturn(self, history: list[ChatMessage] | None) -> MemoryTurn:
        if history is not None:
            await self._memory.aset([as_sent(message) for message in history])
        return MemoryTurn(self._memory, self._prefix_messages)


CacheFriendlyChatEngine = SimpleChatEngine
"""The name that says what it is for."""

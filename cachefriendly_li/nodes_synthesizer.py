"""Answers from retrieved nodes inside a conversation: they stand in the newest user message.

LlamaIndex's `CompactAndRefine` puts its parts into the system message, before the history. Here
system message and history come first and stay as they were; what is new comes last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, closing
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole
from llama_index.core.response_synthesizers import CompactAndRefine

from cachefriendly_li.chat_engine_turn import MemoryTurn
from cachefriendly_li.nodes_prompts import NodesPrompts

__all__ = ["NodesSynthesizer"]

_EMPTY = "Empty Response"


class NodesSynthesizer(CompactAndRefine):
    """One turn's answer. Nodes that fit go into one message; others are refined over, each part
    in a message of its own behind the same history, and the last one is what memory keeps.

    ``reply`` is the LLM's message as it was generated, or so much of it as there is.
    """

    def __init__(self, prompts: NodesPrompts, turn: MemoryTurn, *, streaming: bool = False) -> None:
        super().__init__(
            llm=prompts.llm,
            callback_manager=prompts.callback_manager,
            prompt_helper=prompts.helper,
            streaming=streaming,
        )
        self._prompts = prompts
        self._turn = turn
        self.reply = ChatMessage(role=MessageRole.ASSISTANT, content=_EMPTY)

    def get_response(
        self, query_str: str, text_chunks: Sequence[str], prev_response: Any = None, **_: Any
    ) -> Any:
        """The answer's text; streaming, a generator of its pieces."""
        prompts, turn = self._prompts, self._turn
        parts = prompts.whole(query_str, text_chunks)
        if parts is None:
            parts = prompts.split(query_str, text_chunks, turn.history())
        sent = turn.begin(prompts.first(query_str, parts[0]))
        rest = parts[1:]
        while rest:
            sent, rest = prompts.refine(query_str, self._ask(sent), sent[:-1], rest)
        if len(parts) > 1:
            turn.change(sent[-1])
        return self._pieces(sent) if self._streaming else self._ask(sent)

    async def aget_response(
        self, query_str: str, text_chunks: Sequence[str], prev_response: Any = None, **_: Any
    ) -> Any:
        # What counts tokens is not for the event loop.
        prompts, turn, aside = self._prompts, self._turn, asyncio.to_thread
        parts = await aside(prompts.whole, query_str, text_chunks)
        if parts is None:
            parts = await aside(prompts.split, query_str, text_chunks, await turn.ahistory())
        sent = await turn.abegin(prompts.first(query_str, parts[0]))
        rest = parts[1:]
        while rest:
            answer = await self._aask(sent)
            sent, rest = await aside(prompts.refine, query_str, answer, sent[:-1], rest)
        if len(parts) > 1:
            await turn.achange(sent[-1])
        return self._apieces(sent) if self._streaming else await self._aask(sent)

    def chunks(
        self, response_gen: Generator[str, None, None]
    ) -> Generator[ChatResponse, None, None]:
        """A streamed answer as chunks of a reply, each with the whole message so far."""
        with closing(response_gen):
            for piece in response_gen:
                yield ChatResponse(message=self.reply, delta=piece)

    async def achunks(
        self, response_gen: AsyncGenerator[str, None]
    ) -> AsyncGenerator[ChatResponse, None]:
        async with aclosing(response_gen):
            async for piece in response_gen:
                yield ChatResponse(message=self.reply, delta=piece)

    def _ask(self, messages: list[ChatMessage]) -> str:
        self.reply = self._llm.chat(self._llm._extend_messages(messages)).message
        return self._text()

    async def _aask(self, messages: list[ChatMessage]) -> str:
        self.reply = (await self._llm.achat(self._llm._extend_messages(messages))).message
        return self._text()

    def _text(self) -> str:
        return self._llm._parse_output(self.reply.content or "") or _EMPTY

    def _pieces(self, messages: list[ChatMessage]) -> Generator[str, None, None]:
        for chunk in self._llm.stream_chat(self._llm._extend_messages(messages)):
            self.reply = chunk.message
            yield chunk.delta or ""

    async def _apieces(self, messages: list[ChatMessage]) -> AsyncGenerator[str, None]:
        async for chunk in await self._llm.astream_chat(self._llm._extend_messages(messages)):
            self.reply = chunk.message
            yield chunk.delta or ""

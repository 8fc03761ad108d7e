"""Answers from retrieved nodes inside a conversation: they stand in the newest user message.

LlamaIndex's `CompactAndRefine` puts its parts into the system message, before the history. Here
system message and history come first and stay as they were; what is new comes last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.events.synthesis import (
    GetResponseEndEvent,
    GetResponseStartEvent,
)
from llama_index.core.response_synthesizers import CompactAndRefine

from cachefriendly_li.chat_engine_turn import MemoryTurn
from cachefriendly_li.nodes_prompts import NodesPrompts
from cachefriendly_li.prediction import Asked, apredict, as_parser_wants, astream, predict, stream

__all__ = ["NodesSynthesizer"]

_EMPTY = "Empty Response"
_dispatcher = get_dispatcher(__name__)


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

    @_dispatcher.span
    def get_response(
        self, query_str: str, text_chunks: Sequence[str], prev_response: Any = None, **_: Any
    ) -> Any:
        """The answer's text; streaming, a generator of its pieces."""
        prompts, turn = self._prompts, self._turn
        parts = prompts.whole(query_str, text_chunks)
        if parts is None:
            parts = prompts.split(query_str, text_chunks, turn.history())
        _dispatcher.event(GetResponseStartEvent(query_str=query_str, text_chunks=parts))
        sent = turn.begin(prompts.first(query_str, parts[0]))
        asked, rest = prompts.asked(query_str, parts[0], sent), parts[1:]
        while rest:
            answer = self._ask(self._formatted(asked))
            asked, rest = prompts.refine(query_str, answer, sent[:-1], rest)
        asked = self._formatted(asked)
        if asked.messages[-1] != sent[-1]:
            turn.change(asked.messages[-1])
        response = self._pieces(asked) if self._streaming else self._ask(asked)
        _dispatcher.event(GetResponseEndEvent())
        return response

    @_dispatcher.span
    async def aget_response(
        self, query_str: str, text_chunks: Sequence[str], prev_response: Any = None, **_: Any
    ) -> Any:
        # What counts tokens is not for the event loop.
        prompts, turn, aside = self._prompts, self._turn, asyncio.to_thread
        parts = await aside(prompts.whole, query_str, text_chunks)
        if parts is None:
            parts = await aside(prompts.split, query_str, text_chunks, await turn.ahistory())
        _dispatcher.event(GetResponseStartEvent(query_str=query_str, text_chunks=parts))
        sent = await turn.abegin(prompts.first(query_str, parts[0]))
        asked, rest = prompts.asked(query_str, parts[0], sent), parts[1:]
        while rest:
            answer = await self._aask(self._formatted(asked))
            asked, rest = await aside(prompts.refine, query_str, answer, sent[:-1], rest)
        asked = self._formatted(asked)
        if asked.messages[-1] != sent[-1]:
            await turn.achange(asked.messages[-1])
        response = self._apieces(asked) if self._streaming else await self._aask(asked)
        _dispatcher.event(GetResponseEndEvent())
        return response

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

    def _formatted(self, asked: Asked) -> Asked:
        return replace(asked, messages=as_parser_wants(self._llm, asked.messages))

    def _keep(self, reply: ChatMessage) -> None:
        self.reply = reply

    def _ask(self, asked: Asked) -> str:
        return predict(self._llm, asked, self._keep) or _EMPTY

    async def _aask(self, asked: Asked) -> str:
        return await apredict(self._llm, asked, self._keep) or _EMPTY

    def _pieces(self, asked: Asked) -> Generator[str, None, None]:
        with closing(stream(self._llm, asked, self._keep)) as pieces:
            yield from pieces

    async def _apieces(self, asked: Asked) -> AsyncGenerator[str, None]:
        async with aclosing(await astream(self._llm, asked, self._keep)) as pieces:
            async for piece in pieces:
                yield piece

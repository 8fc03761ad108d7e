"""A streamed chat engine reply that keeps the message as generated and waits without spinning."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, closing
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.chat_engine.types import StreamingAgentChatResponse
from llama_index.core.memory import BaseMemory
from llama_index.core.types import Thread

__all__ = ["LiveChatResponse"]

_log = logging.getLogger(__name__)


class LiveChatResponse(StreamingAgentChatResponse):
    """`StreamingAgentChatResponse` with two repairs.

    The stock class stores the stripped text and drops blocks that are not text; here the message
    enters memory as it was generated. The stock ``response_gen`` polls in a busy loop, which
    slows the engine's thread down; here it sleeps until there is a token.
    """

    def start(self, memory: BaseMemory) -> None:
        """Begin to read the stream, in a thread that goes on when the reader leaves."""
        thread = Thread(target=self.write_response_to_history, args=(memory,))
        self.write_response_to_history_thread = thread
        thread.start()

    def astart(self, memory: BaseMemory) -> None:
        self.awrite_response_to_history_task = asyncio.create_task(
            self.awrite_response_to_history(memory)
        )

    def write_response_to_history(
        self, memory: BaseMemory, on_stream_end_fn: Callable[[], Any] | None = None
    ) -> None:
        """Runs in a thread of its own; the reader of `response_gen` gets what goes wrong."""
        recorder: Any = _Recorder(memory)
        if self.chat_stream is not None:
            self.chat_stream = recorder.watch(self.chat_stream)
        try:
            super().write_response_to_history(recorder, on_stream_end_fn)
            self.response = self.response or recorder.text
        except Exception as error:
            if self.exception is None:
                raise
            _log.debug("the streamed reply failed with %s", type(error).__name__)
        finally:
            self.put_in_queue("")  # wakes the reader

    async def awrite_response_to_history(
        self, memory: BaseMemory, on_stream_end_fn: Callable[[], Any] | None = None
    ) -> None:
        recorder: Any = _Recorder(memory)
        if self.achat_stream is not None:
            self.achat_stream = recorder.awatch(self.achat_stream)
        try:
            await super().awrite_response_to_history(recorder, on_stream_end_fn)
            self.response = self.response or recorder.text
        finally:
            self.aput_in_queue(None)  # wakes the reader, who would look again after 0.1 s

    @property
    def response_gen(self) -> Generator[str, None, None]:
        return self._deltas() if self.is_writing_to_memory else super().response_gen

    def _deltas(self) -> Generator[str, None, None]:
        any_text = False
        try:
            while not (self.is_done and self.queue.empty()):
                if self.exception is not None:
                    raise self.exception
                delta = self.queue.get()
                if delta:
                    self.unformatted_response += delta
                    any_text = True
                    yield delta
            self.response = self.unformatted_response.strip()
            if not any_text:
                yield self.response
        finally:
            if self.write_response_to_history_thread is not None:
                self.write_response_to_history_thread.join()
                self.write_response_to_history_thread = None


class _Recorder:
    """Stands between a stream and the memory: puts the last chunk's message as it arrived."""

    def __init__(self, memory: BaseMemory) -> None:
        self._memory = memory
        self._last: ChatMessage | None = None

    def watch(
        self, chunks: Generator[ChatResponse, None, None]
    ) -> Generator[ChatResponse, None, None]:
        with closing(chunks):
            for chunk in chunks:
                yield self._keep(chunk)

    async def awatch(
        self, chunks: AsyncGenerator[ChatResponse, None]
    ) -> AsyncGenerator[ChatResponse, None]:
        async with aclosing(chunks):
            async for chunk in chunks:
                yield self._keep(chunk)

    @property
    def text(self) -> str:
        """What `response` says of the whole reply; older cores set it only for a reader."""
        return "" if self._last is None else (self._last.content or "").strip()

    def put(self, message: ChatMessage) -> None:
        self._memory.put(self._last or message)

    async def aput(self, message: ChatMessage) -> None:
        await self._memory.aput(self._last or message)

    def _keep(self, chunk: ChatResponse) -> ChatResponse:
        """What the stock class may rewrite; some versions refuse to when a block is not text."""
        self._last = chunk.message
        text = ChatMessage(role=chunk.message.role, content=chunk.message.content or "")
        return ChatResponse(message=text, delta=chunk.delta)

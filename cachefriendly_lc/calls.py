"""One call from request to reply, sync and async, whole and streamed.

The four forms differ only in how they read the engine's `Call`. Leaving any of them early, by an
error, a closed generator or a cancelled task, cancels the call.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.runnables.config import run_in_executor

from cachefriendly.events import ChatEvent, Finished
from cachefriendly.request import ChatRequest
from cachefriendly_lc.convert import chunk_from_event, closing_chunks, message_from_result
from cachefriendly_lc.listener import asked, heard

if TYPE_CHECKING:
    from cachefriendly.engine.call import Call
    from cachefriendly.engine.engine import Engine

__all__ = ["PreparedCall"]


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A checked request with the engine that will serve it, made from the messages ``source``."""

    engine: Engine
    request: ChatRequest
    model_name: str
    timeout: float | None = None
    source: Sequence[BaseMessage] = ()

    def reply(self) -> AIMessage:
        with self._call() as call, closing(iter(call)) as events:
            for event in events:
                heard(event)
            return message_from_result(call.result(), model_name=self.model_name)

    async def areply(self) -> AIMessage:
        with await self._acall() as call:
            async with aclosing(aiter(call)) as events:
                async for event in events:
                    heard(event)
            return message_from_result(await call.aresult(), model_name=self.model_name)

    def chunks(self) -> Generator[AIMessageChunk]:
        with self._call() as call, closing(iter(call)) as events:
            for event in events:
                yield from self._chunks_of(event)

    async def achunks(self) -> AsyncGenerator[AIMessageChunk]:
        # Closed here and not by the garbage collector, which may come too late or elsewhere.
        with await self._acall() as call:
            async with aclosing(aiter(call)) as events:
                async for event in events:
                    for chunk in self._chunks_of(event):
                        yield chunk

    def _call(self) -> Call:
        call = asked(self)
        return call.engine.chat(call.request, timeout=call.timeout)

    async def _acall(self) -> Call:
        # Building the prompt takes milliseconds and the first call loads the model.
        return await run_in_executor(None, self._call)

    def _chunks_of(self, event: ChatEvent) -> list[AIMessageChunk]:
        heard(event)
        if isinstance(event, Finished):
            return closing_chunks(event.result, model_name=self.model_name)
        return [chunk_from_event(event)]

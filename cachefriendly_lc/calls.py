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

from cachefriendly.events import ChatEvent, Finished, RawDelta
from cachefriendly.request import ChatRequest
from cachefriendly_lc.listener import asked, heard
from cachefriendly_lc.replies import chunk_from_event, closing_chunks, message_from_result

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
        made, call = self._started()
        with call, closing(iter(call)) as events:
            for event in events:
                heard(made, event)
            return message_from_result(call.result(), model_name=self.model_name)

    async def areply(self) -> AIMessage:
        made, call = await self._astarted()
        with call:
            async with aclosing(aiter(call)) as events:
                async for event in events:
                    heard(made, event)
            return message_from_result(await call.aresult(), model_name=self.model_name)

    def chunks(self) -> Generator[AIMessageChunk]:
        made, call = self._started()
        with call, closing(iter(call)) as events:
            for event in events:
                heard(made, event)
                yield from self._chunks_of(event)

    async def achunks(self) -> AsyncGenerator[AIMessageChunk]:
        # Closed here and not by the garbage collector, which may come too late or elsewhere.
        made, call = await self._astarted()
        with call:
            async with aclosing(aiter(call)) as events:
                async for event in events:
                    heard(made, event)
                    for chunk in self._chunks_of(event):
                        yield chunk

    def _started(self) -> tuple[PreparedCall, Call]:
        """The call as its listeners want it made, and that call running."""
        made = asked(self)
        return made, made.engine.chat(made.request, timeout=made.timeout)

    async def _astarted(self) -> tuple[PreparedCall, Call]:
        # Building the prompt takes milliseconds and the first call loads the model.
        return await run_in_executor(None, self._started)

    def _chunks_of(self, event: ChatEvent) -> list[AIMessageChunk]:
        if isinstance(event, Finished):
            return closing_chunks(event.result, model_name=self.model_name)
        if isinstance(event, RawDelta):
            return []  # it comes again as what it is read as
        return [chunk_from_event(event)]

"""One call from request to reply, sync and async, whole and streamed.

The four forms differ only in how they read the engine's `Call`. Leaving any of them early, by an
error, a closed generator or a cancelled task, cancels the call.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.runnables.config import run_in_executor

from cachefriendly.engine.request import ChatRequest
from cachefriendly.errors import Cancelled
from cachefriendly.events import ChatEvent, Finished
from cachefriendly_lc.convert import chunk_from_event, last_chunk, message_from_result

if TYPE_CHECKING:
    from cachefriendly.engine.call import Call
    from cachefriendly.engine.engine import Engine

__all__ = ["PreparedCall"]


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A checked request with the engine that will serve it."""

    engine: Engine
    request: ChatRequest
    model_name: str
    timeout: float | None = None

    def reply(self) -> AIMessage:
        with _running(self.engine.chat(self.request), self.timeout) as call:
            return message_from_result(call.result(), model_name=self.model_name)

    async def areply(self) -> AIMessage:
        with _running(await self._submitted(), self.timeout) as call:
            return message_from_result(await call.aresult(), model_name=self.model_name)

    def chunks(self) -> Iterator[AIMessageChunk]:
        with _running(self.engine.chat(self.request), self.timeout) as call:
            finished = False
            for event in call:
                finished = isinstance(event, Finished)
                yield self._chunk(event)
            _check_whole(finished)

    async def achunks(self) -> AsyncGenerator[AIMessageChunk]:
        with _running(await self._submitted(), self.timeout) as call:
            finished = False
            async for event in call:
                finished = isinstance(event, Finished)
                yield self._chunk(event)
            _check_whole(finished)

    async def _submitted(self) -> Call:
        # Building the prompt takes milliseconds and the first call loads the model.
        return await run_in_executor(None, self.engine.chat, self.request)

    def _chunk(self, event: ChatEvent) -> AIMessageChunk:
        if isinstance(event, Finished):
            return last_chunk(event.result, model_name=self.model_name)
        return chunk_from_event(event)


def _check_whole(finished: bool) -> None:
    """A call that was cancelled between two chunks just ends; a torn reply must not look whole."""
    if not finished:
        raise Cancelled("the call was cancelled before it finished")


@contextmanager
def _running(call: Call, timeout: float | None) -> Iterator[Call]:
    """Cancel the call when the block is left or the time is up; the latter is a `TimeoutError`."""
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        call.cancel()

    timer = threading.Timer(timeout, expire) if timeout is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield call
    except Exception as error:
        if expired.is_set():
            raise TimeoutError(
                f"no complete reply within timeout={timeout} seconds; raise timeout or lower "
                "max_tokens"
            ) from error
        raise
    finally:
        if timer is not None:
            timer.cancel()
        call.cancel()

"""A running call: iterate it, await it, or cancel it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from cachefriendly.engine.channel import Channel, Submitted
from cachefriendly.engine.reply import Reply
from cachefriendly.errors import Cancelled
from cachefriendly.events import ChatEvent, ChatResult
from cachefriendly.rows import RowDone, RowEvent

__all__ = ["Call", "Deadline"]


@dataclass(frozen=True, slots=True)
class Deadline:
    """A limit in seconds and the moment at which it is reached (`time.monotonic`)."""

    limit: float
    moment: float

    @classmethod
    def after(cls, limit: float | None) -> Deadline | None:
        return None if limit is None else cls(limit, time.monotonic() + limit)

    @property
    def left(self) -> float:
        return max(0.0, self.moment - time.monotonic())

    def passed(self) -> TimeoutError:
        return TimeoutError(
            f"no complete reply within timeout={self.limit:g} s; "
            "raise the timeout or lower max_tokens"
        )


class Call:
    """One call of the engine, already submitted when you get it.

    Iterate it (``for`` or ``async for``) for events, or ask for the ``result``; one consumer at a
    time. Leaving an iteration early, task cancellation, Ctrl-C, leaving a ``with`` block, a passed
    deadline and garbage collection all cancel it.
    """

    def __init__(
        self,
        running: Submitted,
        reply: Reply,
        *,
        owner: object = None,
        deadline: Deadline | None = None,
    ) -> None:
        """``owner`` is kept alive while the call runs: the engine."""
        self._channel: Channel[RowEvent] = running.channel
        self._stop = running.cancel
        self._finish = running.finish
        self._reply = reply
        self._owner = owner
        self._deadline = deadline
        self._failure: BaseException | None = None
        self._ending = False  # a thread records the whole reply, whoever still waits for it

    def __iter__(self) -> Generator[ChatEvent]:
        try:
            while self._reply.result is None:
                yield from self._events(self._next(self._deadline))
        finally:
            self._leave()

    async def __aiter__(self) -> AsyncGenerator[ChatEvent]:
        try:
            while self._reply.result is None:
                for event in await self._aevents(await self._anext()):
                    yield event
        finally:
            self._leave()

    def result(self, timeout: float | None = None) -> ChatResult:
        """Wait for the whole reply.

        Raises:
            TimeoutError: it took longer than ``timeout`` seconds; the call is cancelled.
            Cancelled: the call was cancelled before it finished.
        """
        deadline = Deadline.after(timeout) or self._deadline
        try:
            while (result := self._reply.result) is None:
                self._events(self._next(deadline))
        finally:
            self._leave()
        return result

    async def aresult(self) -> ChatResult:
        """Like `result`, without blocking the event loop."""
        try:
            while (result := self._reply.result) is None:
                await self._aevents(await self._anext())
        finally:
            self._leave()
        return result

    def cancel(self) -> None:
        """Stop at the next token; from any thread, safe to repeat, no effect on a finished call.

        Who consumes the call gets `Cancelled`. What was forwarded stays in the cache.
        """
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancel()

    def __del__(self) -> None:
        stop = getattr(self, "_stop", None)
        if stop is not None:
            stop()

    def _next(self, deadline: Deadline | None) -> RowEvent:
        if self._failure is not None:
            raise self._failure
        try:
            return self._channel.get(deadline.left if deadline else None)
        except TimeoutError:
            self._failure = deadline.passed() if deadline else None
            raise (self._failure or TimeoutError()) from None
        except BaseException as error:
            self._failure = error
            raise

    async def _anext(self) -> RowEvent:
        if self._failure is not None:
            raise self._failure
        deadline = self._deadline
        try:
            async with asyncio.timeout(deadline.left if deadline else None):
                return await self._channel.aget()
        except TimeoutError:
            self._failure = deadline.passed() if deadline else None
            raise (self._failure or TimeoutError()) from None
        except BaseException as error:
            self._failure = error
            raise

    def _events(self, event: RowEvent) -> list[ChatEvent]:
        events = list(self._reply.events(event))
        if self._reply.enough:
            self._finish()
        return events

    async def _aevents(self, event: RowEvent) -> list[ChatEvent]:
        """In the loop's thread what takes microseconds; a reply's end grows with the history."""
        if not isinstance(event, RowDone):
            return self._events(event)
        self._ending = True
        try:
            return await asyncio.to_thread(self._events, event)
        except BaseException as error:
            self._failure = error
            raise

    def _leave(self) -> None:
        """The consumer is done, perhaps early: what it was shown is what history will show."""
        if self._reply.result is None and not self._ending:
            self._failure = self._failure or Cancelled("the call was cancelled before it finished")
            self._stop()
            self._reply.abandon()

"""A running call: iterate it, await it, or cancel it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Self

from cachefriendly.engine.channel import Channel
from cachefriendly.engine.reply import Reply
from cachefriendly.engine.request import RowEvent
from cachefriendly.errors import Cancelled
from cachefriendly.events import ChatEvent, ChatResult

__all__ = ["Call"]


class Call:
    """One call of the engine, already submitted when you get it.

    Iterate it (``for`` or ``async for``) for events, or ask for the ``result``. Leaving an
    iteration early, task cancellation, Ctrl-C, leaving a ``with`` block and garbage collection all
    come down to `cancel`. One consumer at a time.
    """

    def __init__(
        self,
        channel: Channel[RowEvent],
        reply: Reply,
        cancel: Callable[[], None],
        owner: object,
    ) -> None:
        self._owner = owner  # an engine must not be collected while a call of it runs
        self._channel = channel
        self._reply = reply
        self._cancel = cancel
        self._ready: deque[ChatEvent] = deque()
        self._over = False

    def __iter__(self) -> Iterator[ChatEvent]:
        try:
            while not self._over or self._ready:
                if not self._ready:
                    self._take(self._channel.get())
                while self._ready:
                    yield self._ready.popleft()
        finally:
            self._leave_unfinished()

    async def __aiter__(self) -> AsyncIterator[ChatEvent]:
        try:
            while not self._over or self._ready:
                if not self._ready:
                    self._take(await self._channel.aget())
                while self._ready:
                    yield self._ready.popleft()
        finally:
            self._leave_unfinished()

    def result(self, timeout: float | None = None) -> ChatResult:
        """Wait for the whole reply.

        Raises:
            TimeoutError: it took longer than ``timeout`` seconds; the call is cancelled.
            Cancelled: the call was cancelled before it finished.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while not self._over:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                self._take(self._channel.get(left))
        finally:
            self._leave_unfinished()
        return self._result()

    async def aresult(self) -> ChatResult:
        """Like `result`, without blocking the event loop."""
        try:
            while not self._over:
                self._take(await self._channel.aget())
        finally:
            self._leave_unfinished()
        return self._result()

    def cancel(self) -> None:
        """Stop at the next token. What was forwarded stays in the cache; safe to repeat."""
        if not self._over:
            self._over = True
            self._cancel()
            self._reply.abandon()

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
        # Only the flag: a garbage collection may run inside anybody's lock.
        if not getattr(self, "_over", True):
            self._cancel()

    def _take(self, event: RowEvent) -> None:
        self._ready.extend(self._reply.events(event))
        self._over = self._reply.result is not None

    def _leave_unfinished(self) -> None:
        if not self._over:
            self.cancel()

    def _result(self) -> ChatResult:
        if self._reply.result is None:
            raise Cancelled("the call was cancelled before it finished")
        return self._reply.result

"""The way from the engine thread to one caller, who may be a thread or an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from cachefriendly.errors import EngineClosed
from cachefriendly.rows import RowEvent

__all__ = ["Channel", "Submitted"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Submitted:
    """A running request: where its events arrive, and how to stop it (lock-free, repeatable).

    ``finish``: its reader has enough; it ends as if it had chosen a stop token.
    """

    channel: Channel[RowEvent]
    cancel: Callable[[], None]
    finish: Callable[[], None] = lambda: None


class Channel(Generic[T]):
    """An unbounded queue with one producer and one consumer, read by `get` or `aget`.

    The producer never blocks and never runs the consumer's code. When the consumer's event loop
    is gone, ``on_lost`` is called once instead.
    """

    def __init__(self, on_lost: Callable[[], None]) -> None:
        self._items: deque[T | BaseException] = deque()
        self._ready = threading.Condition()
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None
        self._on_lost = on_lost
        self._process = os.getpid()

    def put(self, item: T | BaseException) -> None:
        """Add an item; an exception is raised in the consumer, in its turn."""
        with self._ready:
            self._items.append(item)
            self._ready.notify()
            waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._wake(*waiter)

    def get(self, timeout: float | None = None) -> T:
        """The next item; waits for it.

        Raises:
            TimeoutError: nothing came within ``timeout`` seconds.
        """
        self._check_process()
        with self._ready:
            if not self._ready.wait_for(lambda: bool(self._items), timeout):
                raise TimeoutError
            return _unwrap(self._items.popleft())

    async def aget(self) -> T:
        self._check_process()
        while True:
            with self._ready:
                if self._items:
                    return _unwrap(self._items.popleft())
                loop = asyncio.get_running_loop()
                future: asyncio.Future[None] = loop.create_future()
                self._waiter = (loop, future)
            await future

    def _check_process(self) -> None:
        """In a forked child nobody writes here, and the lock may be held by a thread that is not
        there; so ask before taking it."""
        if os.getpid() != self._process:
            raise EngineClosed(
                "this call was started before the process forked; make it in the process that "
                "reads it"
            )

    def _wake(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
        try:
            loop.call_soon_threadsafe(_finish, future)
        except RuntimeError:  # the loop was closed: nobody will ever read this
            self._on_lost()


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _unwrap(item: T | BaseException) -> T:
    if isinstance(item, BaseException):
        raise item
    return item

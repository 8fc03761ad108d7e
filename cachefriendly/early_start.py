"""Tools that run while the model still writes: started by call, claimed by call id, or cancelled.

Knows no framework: an adapter says how a call is run (`EarlyRuns._begin`), and whoever would run
the tool after the turn claims what was started instead.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection
from concurrent.futures import CancelledError, Future
from typing import Any, TypeAlias

from cachefriendly.messages import ToolCall

__all__ = ["EarlyRuns", "Run", "Started", "look_at"]

Run: TypeAlias = "Future[Any] | asyncio.Task[Any]"
"""A tool at work: in a thread, or as a task of an event loop."""


class Started:
    """One tool call that runs already."""

    def __init__(self, call: ToolCall, run: Run) -> None:
        self.call = call
        self._run = run

    def answers(self, call: ToolCall) -> bool:
        """Whether this is the run of exactly that call: nobody changed it meanwhile."""
        return call == self.call

    @property
    def done(self) -> bool:
        return self._run.done()

    @property
    def cancelled(self) -> bool:
        return self._run.cancelled()

    def cancel(self) -> None:
        """Stop it if it can be stopped: a task can, a thread that has begun cannot."""
        self._run.cancel()

    def result(self) -> Any:
        """What the tool returned or raised; waits for it."""
        if isinstance(self._run, Future):
            return self._run.result()
        raise CancelledError  # a task belongs to its loop; a thread cannot wait for it there

    async def aresult(self) -> Any:
        if self._run.cancelled():
            raise CancelledError
        if isinstance(self._run, Future):
            return await asyncio.wrap_future(self._run)
        if self._run.get_loop() is not asyncio.get_running_loop():
            raise CancelledError
        return await self._run


class EarlyRuns(ABC):
    """The calls of one reply that were started while it was written."""

    def __init__(self) -> None:
        self._started: dict[str, Started] = {}
        self._unclaimed: set[str] = set()

    def start(self, call: ToolCall) -> None:
        """Run a call now, if it may and can; a call without an id, or seen before, may not."""
        if not call.id or call.id in self._started:
            return
        run = self._begin(call)
        if run is not None:
            self._started[call.id] = Started(call, run)
            self._unclaimed.add(call.id)

    @abstractmethod
    def _begin(self, call: ToolCall) -> Run | None:
        """Run the call's tool; None where it may not start early, or cannot from here."""

    def claim(self, call_id: str) -> Started | None:
        """Take a started run over; it is handed out once."""
        if call_id not in self._unclaimed:
            return None
        self._unclaimed.discard(call_id)
        return self._started[call_id]

    def finished(self, call_id: str) -> bool:
        """Whether a call's result is there already, claimed or not."""
        started = self._started.get(call_id)
        return started is not None and started.done

    def cancel_all_but(self, call_ids: Collection[str] = ()) -> None:
        """Cancel what the finished reply does not ask for; no more calls will come."""
        for call_id in self._unclaimed - set(call_ids):
            self._unclaimed.discard(call_id)
            self._started[call_id].cancel()


def look_at(task: asyncio.Task[Any]) -> None:
    """For `add_done_callback`: an exception that nobody asks for is no warning.

    The call was not wanted after all.
    """
    if not task.cancelled():
        task.exception()

"""The one thread that owns a model: runs posted actions, then steps while there is work."""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

import torch

from cachefriendly.engine.core import Core
from cachefriendly.errors import EngineClosed

__all__ = ["Worker"]

log = logging.getLogger(__name__)
T = TypeVar("T")

# One busy Python thread slows decoding 134 times at the default 5 ms: every operator of a step
# gives the GIL away and waits that long to get it back.
SWITCH_INTERVAL_WHILE_BUSY = 1e-4


class Worker:
    """Owns the engine thread. `post` and `ask` may be called from any thread.

    Raises:
        EngineClosed: after `close`, after the thread died, and in a forked child.
    """

    def __init__(self, core: Core, *, threads: int | None = None) -> None:
        self._core = core
        self._threads = threads
        self._inbox: deque[Callable[[Core], None]] = deque()
        self._wake = threading.Condition()
        self._closed: str | None = None
        self._thread = threading.Thread(target=self._loop, name="cachefriendly-engine", daemon=True)
        _ALIVE.add(self)
        self._thread.start()

    def post(self, action: Callable[[Core], None]) -> None:
        """Run an action on the engine thread, before its next step."""
        with self._wake:
            if self._closed:
                raise EngineClosed(self._closed)
            self._inbox.append(action)
            self._wake.notify()

    def ask(self, question: Callable[[Core], T]) -> T:
        """Run a function on the engine thread and wait for its answer."""
        answer: Future[T] = Future()

        def run(core: Core) -> None:
            try:
                answer.set_result(question(core))
            except BaseException as error:
                answer.set_exception(error)

        self.post(run)
        return answer.result()

    def close(self) -> None:
        """End the thread after its current step; running calls fail with `EngineClosed`."""
        with self._wake:
            if self._closed is None:
                self._closed = "the engine is closed; create a new Engine"
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def mark_forked(self) -> None:
        """In a forked child the thread does not exist and the model's buffers are not ours."""
        self._wake = threading.Condition()
        self._closed = (
            f"this engine was started in process {os.getppid()}, before the fork; "
            "create the Engine in the process that uses it"
        )

    def _loop(self) -> None:
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        try:
            with torch.inference_mode():
                while self._work():
                    pass
            self._drain("the engine was closed while this call ran")
        except BaseException as error:
            log.exception("the engine thread died")
            with self._wake:
                self._closed = f"the engine thread died: {type(error).__name__}: {error}"
            self._drain(self._closed)
        finally:
            self._core.close()  # whatever happened, the owner gets the model back

    def _drain(self, why: str) -> None:
        """Nobody who posted in time may wait for ever: run it, then fail what it began."""
        with self._wake:
            actions = list(self._inbox)
            self._inbox.clear()
        for action in actions:
            action(self._core)
        self._core.fail_all(EngineClosed(why))

    def _work(self) -> bool:
        """Wait for something to do and do it once; False when closed."""
        with self._wake:
            self._wake.wait_for(lambda: self._inbox or self._closed or not self._core.idle)
            if self._closed:
                return False
            actions = list(self._inbox)
            self._inbox.clear()
        for action in actions:
            action(self._core)
        if not self._core.idle:
            with _short_switches():
                self._core.step()
        return True


@contextmanager
def _short_switches() -> Iterator[None]:
    """Lower the interpreter's switch interval while other threads exist; see above.

    Only who lowered it raises it again: two engines would restore each other's low value.
    """
    before = sys.getswitchinterval()
    lowered = before > SWITCH_INTERVAL_WHILE_BUSY and threading.active_count() > 1
    if lowered:
        sys.setswitchinterval(SWITCH_INTERVAL_WHILE_BUSY)
    try:
        yield
    finally:
        if lowered:
            sys.setswitchinterval(before)


# Needed only to tell forked children; holds nothing alive.
_ALIVE: weakref.WeakSet[Worker] = weakref.WeakSet()


def _after_fork() -> None:
    for worker in list(_ALIVE):
        worker.mark_forked()


os.register_at_fork(after_in_child=_after_fork)

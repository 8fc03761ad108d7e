"""Agents whose model calls tools by script, and tools that tell when they ran and with what."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from llama_index.core.tools import FunctionTool

from cachefriendly.events import ChatEvent
from cachefriendly.messages import Message, ToolCall
from cachefriendly.testing import ScriptedEngine
from cachefriendly.testing.engine_double import ScriptedCall

__all__ = ["Journal", "SlowEngine", "add", "asking", "events_of", "grew", "until", "weather"]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def weather(city: str) -> str:
    """Weather of a city."""
    return f"sunny in {city}"


class Journal:
    """What happened, in order, from whichever thread."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self._changed = threading.Condition()

    def write(self, entry: str) -> None:
        with self._changed:
            self.entries.append(entry)
            self._changed.notify_all()

    def wait_for(self, entry: str, timeout: float = 5.0) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: entry in self.entries, timeout)

    def tool(self, name: str, *, asynchronous: bool = False, **options: Any) -> FunctionTool:
        """A tool with one argument; it notes when it begins and ends."""

        def work(text: str) -> str:
            self.write(f"{name} begins")
            self.write(f"{name} ends")
            return f"{name} of {text}"

        async def awork(text: str) -> str:
            await asyncio.sleep(0)
            return work(text)

        chosen: dict[str, Any] = {"async_fn": awork} if asynchronous else {"fn": work}
        return FunctionTool.from_defaults(
            name=name, description="Works on a text.", **chosen, **options
        )


class SlowEngine(ScriptedEngine):
    """Ends its first reply only when all of ``awaited`` stands in the journal.

    With a tool that starts after the turn it would wait in vain, so it gives up after a while.
    """

    def __init__(self, journal: Journal, *replies: str | Message, awaited: Sequence[str]) -> None:
        super().__init__(*replies)
        self._journal, self._awaited = journal, awaited

    def _call(self, events: Sequence[ChatEvent], timeout: float | None) -> ScriptedCall:
        call = super()._call(events, timeout)
        if len(self.requests) == 1 and not self.prefills:
            _hold_back_the_end(call, self._journal, self._awaited)
        return call


def _hold_back_the_end(call: ScriptedCall, journal: Journal, awaited: Sequence[str]) -> None:
    playback = call._playback
    last = playback._items.pop()

    def end() -> None:
        for entry in awaited:
            journal.wait_for(entry, 2.0)
        journal.write("reply ends")
        playback.put(last)

    threading.Thread(target=end, daemon=True).start()


def asking(*calls: tuple[str, str], text: str = "Let me see. ") -> Message:
    """A reply with calls: (tool, text); the ids are c1, c2, and so on."""
    made = (ToolCall(name, {"text": text}, f"c{n}") for n, (name, text) in enumerate(calls, 1))
    return Message("assistant", text, tuple(made), handle="cf1:0:1")


async def events_of(handler: Any) -> list[Any]:
    """All events of a run, its result last."""
    events = [event async for event in handler.stream_events()]
    await handler
    return events


async def until(condition: Any, timeout: float = 10) -> None:
    for _ in range(int(timeout / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never happened")


def grew(engine: ScriptedEngine) -> bool:
    """Whether every prompt begins with the one before."""
    asked = [request.messages for request in engine.requests]
    return all(later[: len(before)] == before for before, later in pairwise(asked))

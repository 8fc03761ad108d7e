"""An engine double that answers from a script, for what needs no model: requests and call forms."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator
from typing import Any

from cachefriendly.config import EngineConfig
from cachefriendly.errors import Cancelled
from cachefriendly.events import CacheReport, ChatEvent, ChatResult, Finished, TextDelta
from cachefriendly.messages import Message, check_conversation
from cachefriendly.request import ChatRequest


class ScriptedCall:
    """Yields one event per word; stalls before ``stall_at`` until it is cancelled."""

    def __init__(self, text: str, stall_at: int | None) -> None:
        self.events: list[ChatEvent] = [TextDelta(word + " ") for word in text.split()]
        message = Message("assistant", text + " ", handle="cf1:0:1")
        report = CacheReport(9, 4, 5, len(self.events), 8)
        self.events.append(Finished(ChatResult(message, "stop", report, (1,), (2,))))
        self.stall_at = stall_at
        self.stopped = threading.Event()
        self.finished = False

    @property
    def cancelled(self) -> bool:
        return self.stopped.is_set() and not self.finished

    def cancel(self) -> None:
        self.stopped.set()

    def __iter__(self) -> Generator[ChatEvent]:
        for index, event in enumerate(self.events):
            if index == self.stall_at:
                self.stopped.wait(10)
            if self.stopped.is_set():
                raise Cancelled("cancelled")
            self.finished = isinstance(event, Finished)
            yield event

    async def __aiter__(self) -> AsyncGenerator[ChatEvent]:
        for index, event in enumerate(self.events):
            while index == self.stall_at and not self.stopped.is_set():
                await asyncio.sleep(0.005)
            if self.stopped.is_set():
                raise Cancelled("cancelled")
            self.finished = isinstance(event, Finished)
            yield event

    def __enter__(self) -> ScriptedCall:
        return self

    def __exit__(self, *error: object) -> None:
        self.cancel()

    def result(self, timeout: float | None = None) -> ChatResult:
        return [event for event in self if isinstance(event, Finished)][-1].result

    async def aresult(self) -> ChatResult:
        return [event async for event in self if isinstance(event, Finished)][-1].result


class ScriptedEngine:
    """Remembers requests and calls."""

    model_name = "scripted"
    context_window = 100
    config = EngineConfig()

    def __init__(self, text: str = "one two three", stall_at: int | None = None) -> None:
        self.text = text
        self.stall_at = stall_at
        self.requests: list[ChatRequest] = []
        self.calls: list[ScriptedCall] = []

    def chat(self, request: ChatRequest, *, timeout: float | None = None) -> ScriptedCall:
        check_conversation(request.messages)
        self.requests.append(request)
        self.calls.append(ScriptedCall(self.text, self.stall_at))
        return self.calls[-1]

    def token_ids(self, text: str) -> list[int]:
        return list(text.encode())

    def __deepcopy__(self, memo: Any) -> ScriptedEngine:
        return self

"""A scripted engine for tests of the adapter alone, and helpers for those on the demo model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from cachefriendly.config import EngineConfig
from cachefriendly.events import (
    CacheReport,
    ChatEvent,
    ChatResult,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallReady,
)
from cachefriendly.messages import Message, check_conversation
from cachefriendly.request import ChatRequest


class ScriptedCall:
    """A `Call` whose events are known beforehand."""

    def __init__(self, events: list[ChatEvent]) -> None:
        self._events = events
        self.cancelled = False
        self.finished = False

    def result(self, timeout: float | None = None) -> ChatResult:
        self.finished = True
        last = self._events[-1]
        assert isinstance(last, Finished)
        return last.result

    async def aresult(self) -> ChatResult:
        await asyncio.sleep(0)
        return self.result()

    def cancel(self) -> None:
        self.cancelled = not self.finished

    def __iter__(self) -> Iterator[ChatEvent]:
        yield from self._events
        self.finished = True

    async def __aiter__(self) -> AsyncIterator[ChatEvent]:
        for event in self._events:
            await asyncio.sleep(0)
            yield event
        self.finished = True

    def __enter__(self) -> ScriptedCall:
        return self

    def __exit__(self, *error: object) -> None:
        self.cancel()


class ScriptedEngine:
    """Answers with the given messages in order and remembers what it was asked."""

    model_name = "scripted"
    context_window = 2048
    config = EngineConfig()

    def __init__(self, *replies: Message) -> None:
        self._replies = list(replies)
        self.requests: list[ChatRequest] = []
        self.calls: list[ScriptedCall] = []

    def chat(self, request: ChatRequest, *, timeout: float | None = None) -> ScriptedCall:
        check_conversation(request.messages)
        self.requests.append(request)
        reply = self._replies[min(len(self.requests), len(self._replies)) - 1]
        report = CacheReport(20, 12, 8, 5, 12)
        finish = "tool_calls" if reply.tool_calls else "stop"
        events: list[ChatEvent] = []
        if reply.reasoning:
            events.append(ReasoningDelta(reply.reasoning))
        events += [TextDelta(piece) for piece in reply.content.split("|") if piece]
        events += [ToolCallReady(i, call) for i, call in enumerate(reply.tool_calls)]
        events.append(Finished(ChatResult(reply, finish, report, (1,), (2,))))
        self.calls.append(ScriptedCall(events))
        return self.calls[-1]

    def token_ids(self, text: str) -> list[int]:
        return [len(word) for word in text.split()]

    def __deepcopy__(self, memo: dict[int, Any]) -> ScriptedEngine:
        return self


@pytest.fixture
def scripted() -> Callable[..., ScriptedEngine]:
    return ScriptedEngine

"""The engine double keeps the contract of `Engine.chat`."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from cachefriendly.errors import Cancelled, EngineClosed, RequestError
from cachefriendly.events import ReasoningDelta, TextDelta, ToolCallReady
from cachefriendly.messages import Message, ToolCall
from cachefriendly.request import ChatRequest
from cachefriendly.testing import ScriptedEngine

HI = ChatRequest((Message("user", "hi"),))
CALL = ToolCall("add", {"a": 1}, "c1")


def test_replies_come_in_order_and_the_last_one_again() -> None:
    engine = ScriptedEngine("one", "two")
    texts = [engine.chat(HI).result().message.content for _ in range(3)]
    assert texts == ["one", "two", "two"]
    assert engine.requests == [HI] * 3
    assert all(call.finished and not call.cancelled for call in engine.calls)


async def test_events_of_a_message() -> None:
    reply = Message("assistant", " An answer.\n", (CALL,), reasoning="hm")
    engine = ScriptedEngine(reply)
    *events, last = engine.chat(HI)
    assert events == [
        ReasoningDelta("hm"),
        TextDelta(" An "),
        TextDelta("answer.\n"),
        ToolCallReady(0, CALL),
    ]
    assert last.result.message == reply
    assert [event async for event in engine.chat(HI)] == [*events, last]
    assert (await engine.chat(HI).aresult()).finish_reason == "tool_calls"


def test_leaving_early_cancels() -> None:
    engine = ScriptedEngine("one two three")
    events = iter(engine.chat(HI))
    next(events)
    events.close()
    with engine.chat(HI):
        pass
    assert [call.cancelled for call in engine.calls] == [True, True]


async def test_a_cancelled_call_says_so() -> None:
    engine = ScriptedEngine("one two three")
    call = engine.chat(HI)
    events = iter(call)
    next(events)
    call.cancel()
    with pytest.raises(Cancelled):
        next(events)
    with pytest.raises(Cancelled):
        call.result()
    other = engine.chat(HI)
    other.cancel()
    with pytest.raises(Cancelled):
        await other.aresult()


async def test_a_stalled_call_meets_its_deadline() -> None:
    engine = ScriptedEngine("one two", stall_at=1)
    with pytest.raises(TimeoutError, match=r"timeout=0\.02 s"):
        list(engine.chat(HI, timeout=0.02))
    with pytest.raises(TimeoutError, match=r"timeout=0\.02 s"):
        await engine.chat(HI, timeout=0.02).aresult()
    assert all(call.cancelled for call in engine.calls)


def test_bad_input_and_a_closed_engine_are_refused() -> None:
    with ScriptedEngine() as engine:
        with pytest.raises(RequestError, match="message list is empty"):
            engine.chat(ChatRequest(()))
        with pytest.raises(RequestError, match="the script holds no reply"):
            engine.chat(HI)
        assert engine.prefill(HI).result().message.content == ""
        assert engine.prefills == [HI]
    with pytest.raises(EngineClosed):
        engine.chat(HI)


def test_there_is_one_of_it() -> None:
    engine: Any = ScriptedEngine("x")
    assert copy.deepcopy(engine) is engine
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(engine)
    assert engine.count_tokens("äb") == 3

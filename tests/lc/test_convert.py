"""Conversion between LangChain's messages and ours loses nothing that the engine looks at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.utils import message_chunk_to_message

from cachefriendly.errors import RequestError
from cachefriendly.events import (
    CacheReport,
    ChatResult,
    ReasoningDelta,
    TextDelta,
    ToolCallReady,
)
from cachefriendly.messages import InvalidToolCall, Message, ToolCall
from cachefriendly_lc.convert import (
    message_from_langchain,
    message_to_langchain,
    messages_from_langchain,
)
from cachefriendly_lc.replies import (
    chunk_from_event,
    closing_chunks,
    message_from_result,
    usage_from_report,
)

REPORT = CacheReport(
    prompt_tokens=30,
    reused_tokens=20,
    prefilled_tokens=10,
    generated_tokens=5,
    forwarded_tokens=14,
)
CALL = ToolCall("add", {"b": 2, "a": [1, {"x": None}]}, "call_1")
TORN = InvalidToolCall('{"name": "add", "arguments": {"a": 1', "torn", None, "call_2")

names = st.text("abcdef_", min_size=1, max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
calls = st.builds(ToolCall, names, st.dictionaries(names, values, max_size=3), names)
invalid = st.builds(InvalidToolCall, st.text(min_size=1), st.text(), st.none() | names, names)
# Empty reasoning and empty text of a call carry nothing, so LangChain drops them.
assistant = st.builds(
    Message,
    st.just("assistant"),
    st.text(),
    st.lists(calls, max_size=2).map(tuple),
    st.lists(invalid, max_size=2).map(tuple),
    name=st.none() | names,
    reasoning=st.none() | st.text(min_size=1),
    handle=st.none() | names,
)
spoken = st.builds(Message, st.sampled_from(["system", "user"]), st.text(), name=st.none() | names)
tool = st.builds(Message, st.just("tool"), st.text(), tool_call_id=names, name=st.none() | names)


@given(assistant | spoken | tool)
def test_round_trip(message: Message) -> None:
    assert message_from_langchain(message_to_langchain(message)) == message


def result(message: Message, reason: Any = "stop") -> ChatResult:
    return ChatResult(message, reason, REPORT, (1, 2), (3,))


@given(assistant)
def test_result_round_trip(message: Message) -> None:
    ai = message_from_result(result(message), model_name="demo")
    assert message_from_langchain(ai) == message


@given(st.text(), st.lists(calls, max_size=3), st.lists(invalid, max_size=2), st.text(max_size=10))
def test_merged_chunks_equal_the_result(
    text: str, made: list[ToolCall], torn: list[InvalidToolCall], reasoning: str
) -> None:
    message = Message(
        "assistant", text, tuple(made), tuple(torn), reasoning=reasoning or None, handle="cf1:x:y"
    )
    events = [ReasoningDelta(c) for c in reasoning] + [TextDelta(c) for c in text]
    chunks = [chunk_from_event(e) for e in events]
    chunks += [chunk_from_event(ToolCallReady(i, c)) for i, c in enumerate(made)]
    merged = AIMessageChunk(content="")
    for chunk in [*chunks, *closing_chunks(result(message), model_name="demo")]:
        merged = merged + chunk
    whole = message_chunk_to_message(merged)
    # Merging chunks keeps no error texts.
    without_errors = tuple(replace(c, error="") for c in torn)
    assert message_from_langchain(whole) == replace(message, invalid_tool_calls=without_errors)
    assert whole.usage_metadata == usage_from_report(REPORT)


def test_result_carries_usage_handle_and_names() -> None:
    message = Message("assistant", "hi", (CALL,), (TORN,), reasoning="hm", handle="cf1:a:b")
    ai = message_from_result(result(message, "tool_calls"), model_name="demo")
    assert ai.usage_metadata == {
        "input_tokens": 30,
        "output_tokens": 5,
        "total_tokens": 35,
        "input_token_details": {"cache_read": 20, "cache_creation": 10},
    }
    assert ai.response_metadata == {
        "model_name": "demo",
        "model_provider": "cachefriendly",
        "finish_reason": "tool_calls",
        "cachefriendly": "cf1:a:b",
    }
    assert ai.additional_kwargs == {"reasoning_content": "hm"}
    assert list(ai.tool_calls[0]["args"]) == ["b", "a"]
    assert ai.invalid_tool_calls[0]["args"] == TORN.raw


def test_text_blocks_are_joined_and_call_blocks_are_duplicates() -> None:
    message = AIMessage(
        content=[
            {"type": "reasoning", "reasoning": "hm"},
            "one ",
            {"type": "text", "text": "two"},
            {"type": "tool_use", "id": "c", "name": "add", "input": {"a": 1}},
            {"type": "tool_call", "id": "c", "name": "add", "args": {"a": 1}},
        ],
        tool_calls=[{"name": "add", "args": {"a": 1}, "id": "c"}],
    )
    assert message_from_langchain(message) == Message(
        "assistant", "one two", (ToolCall("add", {"a": 1}, "c"),), reasoning="hm"
    )


def test_tool_error_is_kept_as_text() -> None:
    failed = ToolMessage("boom", tool_call_id="c", status="error", name="add")
    assert message_from_langchain(failed) == Message("tool", "boom", tool_call_id="c", name="add")


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("system", "system"),
        ("developer", "system"),
        ("user", "user"),
        ("human", "user"),
        ("assistant", "assistant"),
        ("ai", "assistant"),
        ("tool", "tool"),
    ],
)
def test_chat_message_roles(role: str, expected: str) -> None:
    assert message_from_langchain(ChatMessage(role=role, content="x")).role == expected


def test_function_message_is_a_tool_result() -> None:
    assert message_from_langchain(FunctionMessage(content="3", name="add")) == Message(
        "tool", "3", name="add"
    )


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([], "message list is empty"),
        ([HumanMessage("x"), ChatMessage(role="narrator", content="x")], "1: unknown role 'narr"),
        ([RemoveMessage(id="1")], "message 0: unknown message type 'RemoveMessage'"),
        (
            [SystemMessage("x"), HumanMessage([{"type": "image_url", "image_url": "u"}])],
            "message 1: content block of type 'image_url'",
        ),
        ([HumanMessage([{"text": "untyped"}])], "content block of type None"),
    ],
)
def test_refused(messages: list[Any], error: str) -> None:
    with pytest.raises(RequestError, match=error):
        messages_from_langchain(messages)

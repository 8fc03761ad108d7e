"""Reasoning in LangChain's forms: a field of its own, and blocks, whole and streamed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from cachefriendly import Message, ToolCall
from cachefriendly.testing import ScriptedEngine
from cachefriendly_lc import ChatCacheFriendly

CALLS = (ToolCall("add", {"a": 1}, "c1"), ToolCall("add", {"a": 2}, "c2"))
REPLY = Message("assistant", "Let me see.", CALLS, reasoning="Hm.", handle="cf1:0:1")
BLOCKS = [
    ("reasoning", "Hm."),
    ("text", "Let me see."),
    ("tool_call", {"a": 1}),
    ("tool_call", {"a": 2}),
]


def whole(llm: ChatCacheFriendly) -> AIMessage:
    return llm.invoke("hi")


def streamed(llm: ChatCacheFriendly) -> AIMessage:
    chunks = list(llm.stream("hi"))
    message = chunks[0]
    for chunk in chunks[1:]:
        message = message + chunk
    return message


def essence(block: Any) -> tuple[str, Any]:
    keys = {"reasoning": "reasoning", "text": "text", "tool_call": "args"}
    return block["type"], block[keys[block["type"]]]


@pytest.mark.parametrize("ask", [whole, streamed])
@pytest.mark.parametrize("version", ["v0", "v1"])
def test_reasoning_has_its_own_place(
    ask: Callable[[ChatCacheFriendly], AIMessage], version: str
) -> None:
    engine = ScriptedEngine(REPLY)
    llm = ChatCacheFriendly(engine=engine, output_version=version)
    message = ask(llm)
    assert message.additional_kwargs["reasoning_content"] == "Hm."
    assert [essence(block) for block in message.content_blocks] == BLOCKS
    assert message.text == "Let me see."
    assert [call["args"] for call in message.tool_calls] == [{"a": 1}, {"a": 2}]
    llm.invoke([HumanMessage("hi"), message, ToolMessage("3", tool_call_id="c1")])
    back = engine.requests[-1].messages[1]
    assert (back.content, back.reasoning, back.tool_calls) == ("Let me see.", "Hm.", CALLS)


@pytest.mark.parametrize("ask", [whole, streamed])
def test_a_call_without_reasoning_is_a_block_of_its_own(
    ask: Callable[[ChatCacheFriendly], AIMessage],
) -> None:
    reply = Message("assistant", "Let me see.", CALLS)
    message = ask(ChatCacheFriendly(engine=ScriptedEngine(reply), output_version="v1"))
    assert [essence(block) for block in message.content_blocks] == BLOCKS[1:]

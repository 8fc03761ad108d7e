"""LlamaIndex's own agents over the LLM, and a memory that survives their `Context`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.workflow import Context

from cachefriendly.messages import Message, ToolCall
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import CacheFriendlyLLM, ChatMemoryBuffer
from tests.li.agents import add, weather

# Workflows look at every attribute of an agent, deprecated ones of pydantic included.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")

CALL = Message("assistant", "", (ToolCall("add", {"a": 2, "b": 3}, "c1"),), handle="cf1:0:1")
DONE = Message("assistant", "It is 5.", handle="cf1:0:2")


def agent_on(engine: Any, **options: Any) -> FunctionAgent:
    llm = CacheFriendlyLLM(engine=engine)
    return FunctionAgent(tools=[add, weather], llm=llm, system_prompt="Be brief.", **options)


async def test_a_tool_loop() -> None:
    for streaming in (True, False):
        engine = ScriptedEngine(CALL, DONE)
        agent = agent_on(engine, streaming=streaming, initial_tool_choice="add")
        result = await agent.run("2 + 3?")
        assert str(result) == "It is 5."
        assert [call.tool_output.raw_output for call in result.tool_calls] == [5]
        first, second = engine.requests
        assert (first.tool_choice, second.tool_choice) == (("name", "add"), "auto")
        assert [tool.name for tool in first.tools] == ["add", "weather"]
        result_message = Message("tool", "5", tool_call_id="c1")
        assert second.messages == (*first.messages, CALL, result_message)


async def test_two_runs_over_one_context_remember() -> None:
    engine = ScriptedEngine(CALL, DONE, DONE)
    agent = agent_on(engine)
    memory = ChatMemoryBuffer.from_defaults(llm=agent.llm)
    context = Context(agent)
    await agent.run("2 + 3?", ctx=context, memory=memory)
    await agent.run("And again?", ctx=context)
    kinds = [message.role for message in engine.requests[-1].messages]
    assert kinds == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert engine.requests[-1].messages[2] == CALL
    assert engine.requests[-1].messages[4] == DONE


async def test_a_context_stored_as_json_remembers() -> None:
    engine = ScriptedEngine(CALL, DONE)
    agent = agent_on(engine)
    context = Context(agent)
    memory = ChatMemoryBuffer.from_defaults(llm=agent.llm)
    await agent.run("2 + 3?", ctx=context, memory=memory)
    stored = json.dumps(context.to_dict())

    later_engine = ScriptedEngine(DONE)
    later = agent_on(later_engine)
    restored = Context.from_dict(later, json.loads(stored))
    await later.run("And again?", ctx=restored)
    seen = later_engine.requests[0].messages
    assert seen[:-1] == (*engine.requests[1].messages, DONE)
    assert seen[-1] == Message("user", "And again?")


async def test_a_state_prompt_stays_where_it_was_put() -> None:
    """With the stock SQL memory the second step sends another prompt than the first."""
    engine = ScriptedEngine(CALL, DONE)
    agent = agent_on(engine, initial_state={"n": 1})
    await agent.run("2 + 3?", memory=ChatMemoryBuffer.from_defaults(llm=agent.llm))
    first, second = engine.requests
    assert "'n': 1" in first.messages[-1].content
    assert second.messages[: len(first.messages)] == first.messages

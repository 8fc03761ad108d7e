"""`initial_state`: its text stays where it was put, whatever memory the agent remembers with."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent as StockFunctionAgent
from llama_index.core.memory import ChatMemoryBuffer as StockChatMemoryBuffer
from llama_index.core.memory import StaticMemoryBlock
from llama_index.core.workflow import Context

from cachefriendly.messages import Message, ToolCall
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import (
    AgentWorkflow,
    CacheFriendlyLLM,
    FunctionAgent,
    Memory,
)
from tests.li.agents import add, grew
from tests.li.context_tools import count
from tests.li.stock_memory import stock_memory

pytestmark = [
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),
    # What the original memories do, and why ours exist.
    pytest.mark.filterwarnings("ignore:Skipping serialization"),
]

CALL = Message("assistant", "", (ToolCall("add", {"a": 2, "b": 3}, "c1"),), handle="cf1:0:1")
DONE = Message("assistant", "It is 5.", handle="cf1:0:2")
TURNS = (CALL, DONE, CALL, DONE)


def memory_of(kind: str) -> Any:
    if kind == "stock buffer":
        return StockChatMemoryBuffer.from_defaults(token_limit=2000)
    if kind == "stock":
        return stock_memory(session_id=kind, token_limit=2000)
    if kind == "ours":
        return Memory.from_defaults(session_id=kind, token_limit=2000)
    if kind == "ours with a block":
        block = StaticMemoryBlock(name="facts", static_content="Ada counts.")
        return Memory.from_defaults(session_id=kind, token_limit=2000, memory_blocks=[block])
    return None


async def two_turns(agent: Any, memory: Any) -> list[list[str]]:
    context = Context(agent)
    for question in ("2 + 3?", "Sure?"):
        options = {} if memory is None else {"memory": memory}
        await agent.run(question, ctx=context, **options)
    llm = getattr(agent, "llm", None) or next(iter(agent.agents.values())).llm
    return [[m.content for m in request.messages] for request in llm.engine.requests]


@pytest.mark.parametrize("kind", ["default", "stock buffer", "stock", "ours", "ours with a block"])
@pytest.mark.parametrize("form", ["agent", "workflow"])
async def test_the_state_text_stays_within_a_turn_and_across_turns(kind: str, form: str) -> None:
    engine = ScriptedEngine(*TURNS)
    llm = CacheFriendlyLLM(engine=engine)
    if form == "agent":
        agent: Any = FunctionAgent(tools=[add], llm=llm, initial_state={"n": 1})
    else:
        inner = FunctionAgent(tools=[add], llm=llm)
        agent = AgentWorkflow(agents=[inner], initial_state={"n": 1})
    asked = await two_turns(agent, memory_of(kind))
    assert "'n': 1" in asked[0][-1]
    assert "2 + 3?" in asked[0][-1]
    assert ("Ada counts." in asked[0][-1]) == (kind == "ours with a block")
    assert asked[1][: len(asked[0])] == asked[0]
    assert asked[3][: len(asked[2])] == asked[2]
    assert "'n': 1" in asked[2][-1]
    if kind != "stock":  # copies, and nowhere to write the text to: the next turn has it bare
        assert grew(engine)


async def test_with_the_original_agent_the_second_step_has_another_prompt() -> None:
    llm = CacheFriendlyLLM(engine=ScriptedEngine(*TURNS))
    agent = StockFunctionAgent(tools=[add], llm=llm, initial_state={"n": 1})
    asked = await two_turns(agent, memory_of("stock"))
    assert asked[1][: len(asked[0])] != asked[0]


async def test_a_changed_state_is_said_with_the_next_message() -> None:
    call = Message("assistant", "", (ToolCall("count", {}, "c1"),), handle="cf1:0:1")
    engine = ScriptedEngine(call, DONE, DONE)
    agent = FunctionAgent(
        tools=[count], llm=CacheFriendlyLLM(engine=engine), initial_state={"n": 1}
    )
    asked = await two_turns(agent, None)
    assert "'n': 1" in asked[0][-1]
    assert "'n': 2" in asked[2][-1]
    assert grew(engine)


async def test_the_prompt_of_the_state_is_the_users() -> None:
    engine = ScriptedEngine(DONE)
    agent = FunctionAgent(
        llm=CacheFriendlyLLM(engine=engine),
        initial_state={"n": 1},
        state_prompt="{msg} (of {state})",
    )
    await agent.run("Hi", memory=memory_of("stock"))
    assert engine.requests[0].messages[-1].content == "Hi (of {'n': 1})"

"""What LlamaIndex's own tests ask of its agents, asked of ours; also over another LLM."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentInput, AgentStream
from llama_index.core.agent.workflow import FunctionAgent as StockFunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context

from cachefriendly.messages import Message, ToolCall
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import AgentWorkflow, CacheFriendlyLLM, FunctionAgent, ReActAgent
from tests.li.agents import WORKFLOW_WARNINGS, add, events_of

pytestmark = WORKFLOW_WARNINGS

CALL = Message("assistant", "", (ToolCall("add", {"a": 2, "b": 3}, "c1"),), handle="cf1:0:1")
DONE = Message("assistant", "It is 5.", handle="cf1:0:2")
REACT = (
    "",
    "Thought: I add.\nAction: add",
    'Thought: I add.\nAction: add\nAction Input: {"a": 2, "b": 3}',
    "Thought: I know.\nAnswer: It is 5.",
)


def agent_on(*replies: Any, kind: Any = FunctionAgent, **options: Any) -> Any:
    options.setdefault("tools", [add])
    return kind(llm=CacheFriendlyLLM(engine=ScriptedEngine(*replies)), **options)


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_tool_without_arguments_is_called_once(streaming: bool) -> None:
    called = []

    def nothing() -> str:
        """Needs nothing."""
        called.append(1)
        return "ok"

    call = Message("assistant", "", (ToolCall("nothing", {}, "c1"),), handle="cf1:0:1")
    agent = agent_on(call, "Done.", tools=[nothing], streaming=streaming, early_tools=["nothing"])
    assert str(await agent.run("Go.")) == "Done."
    assert called == [1]


async def test_a_react_agent_is_told_of_its_slips() -> None:
    events = await events_of(agent_on(*REACT, kind=ReActAgent).run("2 + 3?"))
    asked = [event.input[-1].content for event in events if isinstance(event, AgentInput)]
    assert "Your previous response was empty" in asked[1]
    assert "Error while parsing the output" in asked[2]
    assert str(events[-1].result) == "It is 5."


async def test_a_direct_result_that_is_an_error_goes_back_to_the_model() -> None:
    def shaky(again: bool = False) -> str:
        """Fails at first."""
        if not again:
            raise RuntimeError("run again with again=True")
        return "it worked"

    calls = [
        Message("assistant", "", (ToolCall("shaky", arguments, name),), handle=f"cf1:0:{name[1]}")
        for name, arguments in (("c1", {}), ("c2", {"again": True}))
    ]
    tool = FunctionTool.from_defaults(shaky, return_direct=True)
    agent = agent_on(*calls, tools=[tool], early_tools=["shaky"])
    context = Context(agent)
    result = await agent.run("Go.", ctx=context)
    assert str(result) == "it worked"
    memory = await context.store.get("memory")
    said = [message.content for message in memory.get()]
    assert [said[0], said[2], said[-1]] == ["Go.", "run again with again=True", "it worked"]


async def test_the_way_to_stop_may_be_said_with_the_run() -> None:
    agent = agent_on(CALL, CALL, "So far: 5.", early_stopping_method="force")
    result = await agent.run("2 + 3?", max_iterations=2, early_stopping_method="generate")
    assert str(result) == "So far: 5."


async def test_a_history_may_be_passed_instead_of_a_message() -> None:
    agent = agent_on("Hello.")
    history = [
        ChatMessage(role="user", content="Hi"),
        ChatMessage(role="assistant", content="Yes?"),
    ]
    await agent.run("And now?", chat_history=history)
    await agent.run(chat_history=[{"role": "user", "content": "Hi again"}])
    first, second = agent.llm.engine.requests
    assert [m.content for m in first.messages] == ["Hi", "Yes?", "And now?"]
    assert [m.content for m in second.messages] == ["Hi again"]
    with pytest.raises(ValueError, match="Must provide either user_msg or chat_history"):
        await agent.run()


async def test_reasoning_streams_apart_from_the_answer() -> None:
    reply = Message("assistant", "It is 5.", reasoning="Two and three.", handle="cf1:0:1")
    events = await events_of(agent_on(reply).run("2 + 3?"))
    streamed = [event for event in events if isinstance(event, AgentStream)]
    assert "".join(event.thinking_delta or "" for event in streamed) == "Two and three."
    assert "".join(event.delta for event in streamed) == "It is 5."
    assert streamed[-1].response == "It is 5."


@pytest.mark.parametrize(
    ("agents", "options", "text"),
    [
        ([], {}, "At least one agent"),
        (["a", "b"], {}, "one root agent"),
        (["a", "b"], {"root_agent": "c"}, "Root agent c not found"),
        (["a"], {"handoff_prompt": "no place"}, "agent_info"),
    ],
)
def test_workflows_that_cannot_be_are_refused(agents: Any, options: Any, text: str) -> None:
    made = [agent_on("x", name=name, description=f"Is {name}.") for name in agents]
    with pytest.raises(ValueError, match=text):
        AgentWorkflow(agents=made, **options)


@pytest.mark.skipif(StockFunctionAgent.__hash__ is None, reason="nor are LlamaIndex's own")
def test_agents_are_keys() -> None:
    agent = agent_on("x")
    assert {agent: 1}[agent] == 1


def test_handoff_is_no_name_for_a_tool() -> None:
    def handoff() -> str:
        """Hand off."""
        return ""

    with pytest.raises(ValueError, match="reserved tool name"):
        agent_on("x", tools=[handoff])


@pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent])
async def test_another_llm_than_ours_may_drive_them(kind: Any) -> None:
    reply = ChatMessage(role="assistant", content="Thought: Ok.\nAnswer: Hello.")
    llm = MockFunctionCallingLLM(response_generator=lambda messages, **kwargs: reply.model_copy())
    agent = kind(tools=[add], llm=llm, early_tools=["add"])
    context = Context(agent)
    for question in ("Hi", "Still there?"):
        assert str(await agent.run(question, ctx=context))
    assert len((await context.store.get("memory")).get()) == 2 * 2

"""Several agents on one LLM: each has a sequence of its own, and a hand-off back is warm."""

from __future__ import annotations

import inspect
from itertools import pairwise
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow as StockAgentWorkflow
from llama_index.core.agent.workflow import FunctionAgent as StockFunctionAgent
from llama_index.core.agent.workflow import ReActAgent as StockReActAgent
from llama_index.core.agent.workflow import ToolCall as ToolCallEvent
from llama_index.core.workflow import Context

from cachefriendly.messages import Message, ToolCall
from cachefriendly.testing import ScriptedEngine, scripted_replies
from cachefriendly_li import (
    AgentWorkflow,
    CacheFriendlyLLM,
    ChatMemoryBuffer,
    FunctionAgent,
    ReActAgent,
)
from tests.li.agents import HAND_TEXTS, WORKFLOW_WARNINGS, add, events_of, two_agents
from tests.li.watch import Watch, ids_of

pytestmark = WORKFLOW_WARNINGS

WORKFLOWS = [AgentWorkflow, StockAgentWorkflow]


def handing_to(name: str, number: int = 1) -> Message:
    arguments = {"to_agent": name, "reason": "skill"}
    calls = (ToolCall("handoff", arguments, f"h{number}"),)
    return Message("assistant", "", calls, handle=f"cf1:0:{number}")


@pytest.mark.parametrize("kind", WORKFLOWS)
async def test_a_hand_off_back_prefills_only_what_is_new(
    tiny_llm: CacheFriendlyLLM, tiny_watch: Watch, kind: Any
) -> None:
    llm = tiny_llm.model_copy(update={"max_new_tokens": 150})
    workflow = kind(agents=two_agents(llm), root_agent="write")
    memory = ChatMemoryBuffer.from_defaults(llm=llm)
    context = Context(workflow)
    with scripted_replies(*HAND_TEXTS, ids_of("Written.")):
        assert str(await workflow.run("Go.", ctx=context, memory=memory)) == "Written."
    first, other, back = tiny_watch.reports
    # The first agent's own turn is held; what is new to it: two results and the other's turn.
    held = first.prompt_tokens + first.generated_tokens - 1
    assert back.reused_tokens == held
    assert back.prefilled_tokens == back.prompt_tokens - held
    assert back.losses == ()
    assert back.prefilled_tokens < 500 < first.prefilled_tokens
    assert other.reused_tokens < 200  # another system prompt: another sequence
    reports = tiny_watch.reports
    assert tiny_watch.seen.tokens == sum(report.forwarded_tokens for report in reports)
    with scripted_replies(ids_of("Yes.")):
        await workflow.run("Sure?", ctx=context, memory=memory)
    last = tiny_watch.reports[-1]
    assert last.reused_tokens == back.prompt_tokens + back.generated_tokens - 1


@pytest.mark.parametrize("kind", WORKFLOWS)
async def test_each_agent_reads_one_growing_conversation(kind: Any) -> None:
    replies = (
        handing_to("check"),
        handing_to("write", 2),
        "Written.",
        handing_to("check", 3),
        "Ok.",
    )
    engine = ScriptedEngine(*replies)
    workflow = kind(agents=two_agents(CacheFriendlyLLM(engine=engine)), root_agent="write")
    context = Context(workflow)
    await workflow.run("Go.", ctx=context)
    if kind is StockAgentWorkflow:  # its own default memory would be lost with the context
        return
    await workflow.run("Again.", ctx=context)
    asked: dict[str, list[Any]] = {}
    for request in engine.requests:
        asked.setdefault(request.messages[0].content, []).append(request.messages)
    assert [len(asked[system]) for system in ("You write.", "You check.")] == [3, 2]
    for prompts in asked.values():
        for before, later in pairwise(prompts):
            assert later[: len(before)] == before


async def test_a_hand_off_is_told_as_in_the_original() -> None:
    told = []
    for kind, agent in ((StockAgentWorkflow, StockFunctionAgent), (AgentWorkflow, FunctionAgent)):
        engine = ScriptedEngine(handing_to("check"), "Checked.")
        llm = CacheFriendlyLLM(engine=engine)
        agents = [
            agent(name=name, description=f"Can {name}.", llm=llm, can_handoff_to=targets)
            for name, targets in (("write", ["check"]), ("check", []))
        ]
        workflow = kind(
            agents=agents,
            root_agent="write",
            handoff_prompt="Hand to: {agent_info}",
            handoff_output_prompt="{to_agent} takes over: {reason}",
        )
        events = await events_of(workflow.run("Go."))
        assert events[-1].result.current_agent_name == "check"
        told.append(([type(e) for e in events], [r.messages for r in engine.requests]))
        assert engine.requests[0].tools[-1].description == "Hand to: {'check': 'Can check.'}"
        assert not engine.requests[1].tools
        assert engine.requests[1].messages[-1].content == "check takes over: skill"
    assert told[0] == told[1]


@pytest.mark.parametrize(("target", "text"), [("nobody", "not found"), ("write", "hand off")])
async def test_a_hand_off_that_cannot_be_is_said_to_the_model(target: str, text: str) -> None:
    engine = ScriptedEngine(handing_to(target), "Then I do it.")
    agents = two_agents(CacheFriendlyLLM(engine=engine), can_handoff_to=["check"])
    agents[1].can_handoff_to = None
    workflow = AgentWorkflow(agents=agents, root_agent="write")
    result = await workflow.run("Go.")
    assert text in result.tool_calls[0].tool_output.content


async def test_a_react_agents_turn_is_known_to_the_agent_it_hands_to() -> None:
    """The original keeps it for itself, and writes it behind the other's turn."""
    action = 'Thought: Not me.\nAction: handoff\nAction Input: {"to_agent": "check", "reason": "r"}'
    engine = ScriptedEngine(action, "Checked.")
    llm = CacheFriendlyLLM(engine=engine)
    agents = [
        ReActAgent(name="write", description="Writes.", llm=llm),
        FunctionAgent(name="check", description="Checks.", system_prompt="You check.", llm=llm),
    ]
    workflow = AgentWorkflow(agents=agents, root_agent="write")
    assert str(await workflow.run("Go.")) == "Checked."
    said = [(m.role, m.content) for m in engine.requests[1].messages]
    assert said[:3] == [("system", "You check."), ("user", "Go."), ("assistant", action)]
    assert said[3][1].startswith("Observation: Agent check is now handling the request")


async def test_a_human_answers_while_the_workflow_waits() -> None:
    from llama_index.core.workflow import HumanResponseEvent, InputRequiredEvent

    from tests.li.context_tools import confirm

    call = Message("assistant", "", (ToolCall("confirm", {}, "c1"),), handle="cf1:0:1")
    engine = ScriptedEngine(call, "Confirmed.")
    agent = FunctionAgent(tools=[confirm], llm=CacheFriendlyLLM(engine=engine))
    handler = agent.run("Go.")
    async for event in handler.stream_events():
        if isinstance(event, InputRequiredEvent):
            handler.ctx.send_event(HumanResponseEvent(response="yes"))
    assert str(await handler) == "Confirmed."
    assert engine.requests[1].messages[-1].content == "yes"


async def test_from_tools_or_functions_makes_our_agent() -> None:
    call = Message("assistant", "", (ToolCall("add", {"a": 2, "b": 3}, "c1"),), handle="cf1:0:1")
    llm = CacheFriendlyLLM(engine=ScriptedEngine(call, "5"))
    workflow = AgentWorkflow.from_tools_or_functions([add], llm=llm, system_prompt="Be brief.")
    assert type(workflow.agents["Agent"]) is FunctionAgent
    events = await events_of(workflow.run("2 + 3?"))
    assert [e.tool_name for e in events if isinstance(e, ToolCallEvent)] == ["add"]


@pytest.mark.parametrize(
    ("ours", "stock"),
    [
        (FunctionAgent, StockFunctionAgent),
        (ReActAgent, StockReActAgent),
        (AgentWorkflow, StockAgentWorkflow),
    ],
)
def test_arguments_are_those_of_the_original(ours: Any, stock: Any) -> None:
    assert issubclass(ours, stock)
    taken = inspect.signature(ours.__init__).parameters
    assert list(taken) == list(inspect.signature(stock.__init__).parameters)
    if hasattr(stock, "model_fields"):
        more = set(ours.model_fields) - set(stock.model_fields)
        assert more == {"early_tools", "layout"}
    if hasattr(stock, "from_tools_or_functions"):
        names = [
            list(inspect.signature(c.from_tools_or_functions).parameters) for c in (ours, stock)
        ]
        assert names[0] == names[1]

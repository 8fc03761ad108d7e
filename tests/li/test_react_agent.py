"""`ReActAgent` keeps what was written and observed; a conversation only grows."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.agent.react.formatter import ReActChatFormatter
from llama_index.core.agent.workflow import AgentInput, AgentStream
from llama_index.core.agent.workflow import ReActAgent as StockReActAgent
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context

from cachefriendly.messages import Message
from cachefriendly.testing import ScriptedEngine, scripted_replies
from cachefriendly_li import CacheFriendlyLLM, ReActAgent
from tests.li.agents import WORKFLOW_WARNINGS, add, events_of, grew
from tests.li.context_tools import look
from tests.li.watch import Watch, ids_of

pytestmark = WORKFLOW_WARNINGS

ACTION = 'Thought: I must add.\nAction: add\nAction Input: {"a": 2, "b": 3}'
ANSWER = "Thought: I know it.\nAnswer: It is 5."
STEP = Message("assistant", ACTION, handle="cf1:0:1")
LAST = Message("assistant", ANSWER, handle="cf1:0:2")


STOCK = [(StockReActAgent, {}), (ReActAgent, {"layout": "stock"})]


def agent_on(engine: Any, kind: Any = ReActAgent, **options: Any) -> Any:
    return kind(tools=[add], llm=CacheFriendlyLLM(engine=engine), **options)


async def test_replies_and_observations_stay_as_they_were() -> None:
    engine = ScriptedEngine(STEP, STEP, LAST, STEP, LAST)
    agent = agent_on(engine, system_prompt="Be brief.")
    context = Context(agent)
    assert str(await agent.run("2 + 3?", ctx=context)) == "It is 5."
    assert str(await agent.run("Sure?", ctx=context)) == "It is 5."
    assert grew(engine)
    observed = Message("user", "Observation: 5")
    system = engine.requests[0].messages[0]
    assert "Be brief." in system.content
    assert engine.requests[-1].messages == (
        system,
        Message("user", "2 + 3?"),
        *(STEP, observed, STEP, observed, LAST),
        Message("user", "Sure?"),
        *(STEP, observed),
    )


@pytest.mark.parametrize(
    ("kind", "options"), [(StockReActAgent, {}), (ReActAgent, {"layout": "stock"})]
)
async def test_the_original_writes_the_models_own_steps_anew(kind: Any, options: Any) -> None:
    engine = ScriptedEngine(STEP, LAST)
    assert str(await agent_on(engine, kind, **options).run("2 + 3?")) == "It is 5."
    rewritten = engine.requests[1].messages[2]
    assert (rewritten.content, rewritten.handle) == (ACTION.replace('"', "'"), None)


async def test_a_step_prefills_its_observation_and_nothing_else(
    tiny_llm: CacheFriendlyLLM, tiny_watch: Watch
) -> None:
    short = ReActChatFormatter(system_header="Tools: {tool_desc}")
    agent = ReActAgent(
        tools=[FunctionTool.from_defaults(add, description="Adds.")], llm=tiny_llm, formatter=short
    )
    context = Context(agent)
    with scripted_replies(ids_of(ACTION), ids_of(ANSWER), ids_of(ANSWER)):
        await agent.run("2 + 3?", ctx=context)
        await agent.run("Sure?", ctx=context)
    tiny_watch.check_warm(calls=3)
    # One id for each byte and control token; the end of the turn was generated, not forwarded.
    scaffold = len("E\nSuser\nE\nSassistant\n")
    new = [report.prefilled_tokens for report in tiny_watch.reports[1:]]
    assert new == [scaffold + len("Observation: 5"), scaffold + len("Sure?")]


async def test_a_slip_is_corrected_behind_the_conversation() -> None:
    """The original says the user's message twice and puts the correction before earlier steps."""
    slip = Message("assistant", "Thought: I add.\nAction: add it", handle="cf1:0:3")
    engine = ScriptedEngine(STEP, slip, "", STEP, LAST)
    agent = agent_on(engine)
    assert str(await agent.run("2 + 3?")) == "It is 5."
    assert grew(engine)
    said = [message.content for message in engine.requests[-1].messages[1:]]
    assert said.count("2 + 3?") == 1
    assert said[3] == slip.content
    assert said[4].startswith("Error while parsing the output")
    assert said[6].startswith("FAILURE: Your previous response was empty.")
    assert said[-2:] == [ACTION, "Observation: 5"]


async def test_a_result_that_is_the_answer_becomes_history() -> None:
    engine = ScriptedEngine(STEP, LAST)
    tool = FunctionTool.from_defaults(add, return_direct=True)
    agent = ReActAgent(tools=[tool], llm=CacheFriendlyLLM(engine=engine))
    context = Context(agent)
    assert str(await agent.run("2 + 3?", ctx=context)) == "5"
    await agent.run("Sure?", ctx=context)
    assert grew(engine)
    assert [m.content for m in engine.requests[1].messages[2:]] == [
        ACTION,
        "Observation: 5",
        "Thought: 5\nAnswer: 5",
        "Sure?",
    ]


async def test_events_are_those_of_the_original() -> None:
    told = []
    for kind in (StockReActAgent, ReActAgent):
        events = await events_of(agent_on(ScriptedEngine(STEP, LAST), kind).run("2 + 3?"))
        told.append(
            [
                (type(e).__name__, e.delta, e.response) if isinstance(e, AgentStream) else type(e)
                for e in events
            ]
        )
        assert isinstance(events[0], AgentInput)
    assert told[0] == told[1]


async def test_reasoning_steps_are_in_the_context_while_the_turn_runs() -> None:
    engine = ScriptedEngine(
        "Thought: I look.\nAction: look\nAction Input: {}", "Thought: Ok.\nAnswer: Done."
    )
    agent = ReActAgent(tools=[look], llm=CacheFriendlyLLM(engine=engine))
    result = await agent.run("Go.")
    assert result.tool_calls[0].tool_output.content == "look"


async def test_an_answer_without_a_thought_is_the_answer() -> None:
    assert str(await agent_on(ScriptedEngine("It is 5.")).run("2 + 3?")) == "It is 5."

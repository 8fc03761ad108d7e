"""Structured output and the last word of a stopped run: forks that cost their own question."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentStreamStructuredOutput
from llama_index.core.agent.workflow import FunctionAgent as StockFunctionAgent
from llama_index.core.workflow import Context, WorkflowRuntimeError
from pydantic import BaseModel

from cachefriendly.messages import Message, ToolCall
from cachefriendly.testing import ScriptedEngine, scripted_replies
from cachefriendly_li import AgentWorkflow, CacheFriendlyLLM, FunctionAgent, ReActAgent
from tests.li.agents import WORKFLOW_WARNINGS, add, events_of, grew
from tests.li.watch import Watch, call_text, ids_of

pytestmark = WORKFLOW_WARNINGS

CALL = Message("assistant", "", (ToolCall("add", {"a": 2, "b": 3}, "c1"),), handle="cf1:0:1")
DONE = Message("assistant", "It is 5.", handle="cf1:0:2")


class Sum(BaseModel):
    """A sum."""

    total: int


SUM = Message("assistant", '{"total": 5}', handle="cf1:0:3")


def agent_on(engine: Any, kind: Any = FunctionAgent, **options: Any) -> Any:
    llm = CacheFriendlyLLM(engine=engine)
    return kind(tools=[add], llm=llm, system_prompt="Be brief.", **options)


@pytest.mark.parametrize("form", ["agent", "workflow", "agent in a workflow"])
async def test_structured_output_goes_on_from_the_conversation(form: str) -> None:
    engine = ScriptedEngine(CALL, DONE, SUM, DONE, SUM)
    agent = agent_on(engine, output_cls=None if form == "workflow" else Sum)
    runner: Any = agent
    if form != "agent":
        output_cls = Sum if form == "workflow" else None
        runner = AgentWorkflow(agents=[agent], output_cls=output_cls)
    context = Context(runner)
    events = await events_of(runner.run("2 + 3?", ctx=context))
    result = events[-1].result
    assert result.structured_response == {"total": 5}
    assert result.get_pydantic_model(Sum) == Sum(total=5)
    assert [e.output for e in events if isinstance(e, AgentStreamStructuredOutput)] == [
        {"total": 5}
    ]
    last, aside = engine.requests[1], engine.requests[2]
    assert aside.messages[:-1] == (*last.messages, DONE)
    assert "schema" in aside.messages[-1].content
    assert (aside.tools, aside.tool_choice) == (last.tools, "none")
    assert aside.response_schema == Sum.model_json_schema()
    await runner.run("Sure?", ctx=context)
    assert engine.requests[3].messages == (*last.messages, DONE, Message("user", "Sure?"))


async def test_with_the_stock_layout_it_has_llamaindexs_prompt() -> None:
    told = []
    for kind, options in ((StockFunctionAgent, {}), (FunctionAgent, {"layout": "stock"})):
        call = Message("assistant", "", (ToolCall("Sum", {"total": 5}, "c1"),))
        engine = ScriptedEngine(DONE, call)
        result = await agent_on(engine, kind, output_cls=Sum, **options).run("2 + 3?")
        assert result.structured_response == {"total": 5}
        told.append(engine.requests[1].messages)
    assert told[0] == told[1]


async def test_it_prefills_its_question_and_evicts_nothing(
    tiny_llm: CacheFriendlyLLM, tiny_watch: Watch
) -> None:
    agent = FunctionAgent(tools=[], llm=tiny_llm, output_cls=Sum)
    context = Context(agent)
    with scripted_replies(ids_of("It is 5."), ids_of('{"total": 5}'), ids_of("Yes.")):
        await agent.run("2 + 3?", ctx=context)
        await agent.run("Sure?", ctx=context)
    first, aside, second = tiny_watch.reports[:3]
    held = first.prompt_tokens + first.generated_tokens - 1
    assert aside.reused_tokens == held
    # What both the question aside and the next message begin with was forwarded for the former.
    assert second.reused_tokens >= held
    assert second.prefilled_tokens <= len("E\nSuser\nSure?E\nSassistant\n")


async def test_a_function_of_the_users_gets_the_messages() -> None:
    seen = []

    async def shape(messages: Any) -> dict[str, Any]:
        seen.extend(message.content for message in messages)
        return {"total": 5}

    engine = ScriptedEngine(DONE)
    result = await agent_on(engine, structured_output_fn=shape).run("2 + 3?")
    assert result.structured_response == {"total": 5}
    assert seen == ["2 + 3?", "It is 5."]


async def test_output_that_fails_is_a_warning_as_in_the_original() -> None:
    engine = ScriptedEngine(DONE, "no JSON")
    with pytest.warns(UserWarning, match="problem with the generation of the structured output"):
        result = await agent_on(engine, output_cls=Sum).run("2 + 3?")
    assert (str(result), result.structured_response) == ("It is 5.", None)


REACT_STEP = 'Thought: I add.\nAction: add\nAction Input: {"a": 2, "b": 3}'


@pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent])
@pytest.mark.parametrize("form", ["agent", "workflow"])
async def test_a_stopped_run_answers_from_what_it_has_read(kind: Any, form: str) -> None:
    """The original asks without what the tools said, and leaves half a turn for the next run."""
    step = CALL if kind is FunctionAgent else Message("assistant", REACT_STEP, handle="cf1:0:1")
    engine = ScriptedEngine(step, step, "Five, I think.", "Thought: Ok.\nAnswer: Yes.")
    agent = agent_on(engine, kind)
    runner = agent if form == "agent" else AgentWorkflow(agents=[agent])
    context = Context(runner)
    result = await runner.run(
        "2 + 3?", ctx=context, max_iterations=2, early_stopping_method="generate"
    )
    assert str(result) == "Five, I think."
    assert [call.tool_output.content for call in result.tool_calls] == ["5"]
    asked = engine.requests[2].messages
    assert asked[:-1] == engine.requests[1].messages
    assert "maximum number of iterations (2)" in asked[-1].content
    await runner.run("Sure?", ctx=context)
    after = engine.requests[3].messages
    assert after[: len(asked) - 1] == asked[:-1]
    assert [m.content for m in after[len(asked) - 1 :]] == ["Five, I think.", "Sure?"]


async def test_the_last_word_prefills_its_question(
    tiny_llm: CacheFriendlyLLM, tiny_watch: Watch
) -> None:
    agent = FunctionAgent(tools=[add], llm=tiny_llm, early_stopping_method="generate")
    with scripted_replies(ids_of(call_text("add", "{}")), ids_of("Five.")):
        await agent.run("2 + 3?", max_iterations=1)
    first, last = tiny_watch.reports
    assert last.reused_tokens >= first.prompt_tokens - len("Sassistant\n")


async def test_forced_stops_raise_and_leave_nothing_behind() -> None:
    engine = ScriptedEngine(CALL, DONE)
    agent = agent_on(engine)
    context = Context(agent)
    with pytest.raises(WorkflowRuntimeError, match="Max iterations of 1 reached"):
        await agent.run("2 + 3?", ctx=context, max_iterations=1)
    await context.store.set("max_iterations", 20)
    assert str(await agent.run("Sure?", ctx=context)) == "It is 5."
    assert [m.content for m in engine.requests[1].messages] == ["Be brief.", "2 + 3?", "Sure?"]
    assert grew(engine)

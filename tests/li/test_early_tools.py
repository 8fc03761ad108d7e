"""Tools start the moment their arguments are written; whoever asks for their result gets it."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow as StockAgentWorkflow
from llama_index.core.agent.workflow import ToolCall, ToolCallResult
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context

from cachefriendly.messages import Message
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import AgentWorkflow, CacheFriendlyLLM, FunctionAgent, ReActAgent
from tests.li.agents import WORKFLOW_WARNINGS, Journal, SlowEngine, add, asking, events_of
from tests.li.context_tools import remember

pytestmark = WORKFLOW_WARNINGS


def agent_of(engine: Any, tools: list[Any], early: Any = (), **options: Any) -> FunctionAgent:
    llm = CacheFriendlyLLM(engine=engine)
    return FunctionAgent(tools=tools, llm=llm, early_tools=list(early), **options)


def runner(agent: FunctionAgent, form: str) -> Any:
    return agent if form == "agent" else AgentWorkflow(agents=[agent])


@pytest.mark.parametrize("form", ["agent", "workflow"])
@pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "sync"])
async def test_tools_start_before_the_reply_ends_and_run_once(
    form: str, asynchronous: bool
) -> None:
    journal = Journal()
    tools = [journal.tool(name, asynchronous=asynchronous) for name in ("one", "two", "late")]
    reply = asking(("one", "x"), ("two", "y"), ("late", "z"))
    engine = SlowEngine(journal, reply, "Done.", awaited=["one ends", "two ends"])
    agent = agent_of(engine, tools, ["one", tools[1]])
    events = await events_of(runner(agent, form).run("Go."))
    results = {e.tool_id: e.tool_output.content for e in events if isinstance(e, ToolCallResult)}
    assert results == {"c1": "one of x", "c2": "two of y", "c3": "late of z"}
    assert str(events[-1].result) == "Done."
    end = journal.entries.index("reply ends")
    assert {"one ends", "two ends"} <= set(journal.entries[:end])
    assert journal.entries[end + 1 :] == ["late begins", "late ends"]
    assert journal.entries.count("one begins") == 1


async def test_two_tools_overlap_while_the_model_still_writes() -> None:
    journal = Journal()
    both = [asyncio.Event(), asyncio.Event()]

    async def meet(place: int, text: str) -> str:
        both[place].set()
        await asyncio.wait_for(both[1 - place].wait(), 5)
        journal.write(f"met {place}")
        return text

    async def left(text: str) -> str:
        """Waits for the other."""
        return await meet(0, text)

    async def right(text: str) -> str:
        """Waits for the other."""
        return await meet(1, text)

    engine = SlowEngine(
        journal, asking(("left", "x"), ("right", "y")), "Done.", awaited=["met 0", "met 1"]
    )
    await agent_of(engine, [left, right], ["left", "right"]).run("Go.")
    assert journal.entries[-1] == "reply ends"


async def test_equal_calls_each_get_a_run() -> None:
    journal = Journal()
    engine = ScriptedEngine(asking(("one", "x"), ("one", "x")), "Done.")
    result = await agent_of(engine, [journal.tool("one")], ["one"]).run("Go.")
    assert [call.tool_output.content for call in result.tool_calls] == ["one of x"] * 2
    assert journal.entries.count("one begins") == 2


@pytest.mark.parametrize("early", [(), ("fails",)])
async def test_an_exception_becomes_the_same_error_result(early: Any) -> None:
    def fails(text: str) -> str:
        """Fails."""
        raise LookupError(f"no {text}")

    engine = ScriptedEngine(asking(("fails", "x")), "Done.")
    result = await agent_of(engine, [fails], early).run("Go.")
    (call,) = result.tool_calls
    assert (call.tool_output.content, call.tool_output.is_error) == ("no x", True)
    assert isinstance(call.tool_output.exception, LookupError)
    assert engine.requests[1].messages[-1].content == "no x"


@pytest.mark.parametrize("early", [(), ("strict",)])
async def test_wrong_arguments_become_the_same_error_result(early: Any) -> None:
    def strict(number: int) -> str:
        """Works on a number."""
        return str(number)

    engine = ScriptedEngine(asking(("strict", "x")), "Done.")
    result = await agent_of(engine, [strict], early).run("Go.")
    assert "unexpected keyword argument 'text'" in result.tool_calls[0].tool_output.content


USER: ContextVar[str] = ContextVar("user", default="nobody")


async def test_context_variables_of_the_run_reach_the_tool() -> None:
    seen = []

    async def look(text: str) -> str:
        """Looks around."""
        seen.append((USER.get(), threading.get_ident()))
        return text

    for early in ((), ("look",)):
        token = USER.set("ada")
        handler = agent_of(ScriptedEngine(asking(("look", "x")), "Done."), [look], early).run("Go.")
        USER.reset(token)
        await handler
    assert seen == [("ada", threading.get_ident())] * 2


async def test_work_is_cancelled_when_the_run_is() -> None:
    begun, ended = asyncio.Event(), []

    async def endless(text: str) -> str:
        """Never ends by itself."""
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return text

    for stall_at in (4, None):  # while the model writes; while the agent waits for its tool
        begun.clear()
        engine = ScriptedEngine(asking(("endless", "x")), stall_at=stall_at)
        handler = agent_of(engine, [endless], ["endless"]).run("Go.")
        await asyncio.wait_for(begun.wait(), 30)
        await handler.cancel_run()
        for _ in range(5):
            await asyncio.sleep(0)
    assert ended == ["cancelled"] * 2


async def test_what_a_failed_reply_started_is_cancelled() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(text: str) -> str:
        """Never ends by itself."""
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return text

    class Failing(ScriptedEngine):
        def _call(self, events: Any, timeout: Any) -> Any:
            call = super()._call(events[:-1], timeout)
            call._playback.put(RuntimeError("out of memory"))
            return call

    class Patient(CacheFriendlyLLM):
        async def astream_chat(self, messages: Any, **kwargs: Any) -> Any:
            chunks = await super().astream_chat(messages, **kwargs)

            async def slowly() -> Any:
                async for chunk in chunks:
                    yield chunk
                    await asyncio.sleep(0)

            return slowly()

    agent = FunctionAgent(
        tools=[endless],
        llm=Patient(engine=Failing(asking(("endless", "x")))),
        early_tools=["endless"],
    )
    with pytest.raises(Exception, match="out of memory"):
        await agent.run("Go.")
    await asyncio.wait_for(asyncio.gather(begun.wait(), ended.wait()), 5)


async def test_a_tool_that_takes_a_context_never_starts_early() -> None:
    tool = FunctionTool.from_defaults(async_fn=remember)
    with pytest.raises(ValueError, match="'remember' cannot start early: it takes a Context"):
        agent_of(ScriptedEngine("x"), [tool], ["remember"])
    agent = agent_of(ScriptedEngine(asking(("remember", "x")), "Done."), [tool])
    context = Context(agent)
    await agent.run("Go.", ctx=context)
    assert await context.store.get("text") == "x"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("one", "is no list"),
        ([7], "int is no tool"),
        (["two"], "no tool 'two'; the tools are: 'one'"),
    ],
)
def test_early_tools_are_checked_when_the_agent_is_made(wrong: Any, text: str) -> None:
    tool = Journal().tool("one")
    with pytest.raises(ValueError, match=text):
        FunctionAgent(
            tools=[tool], llm=CacheFriendlyLLM(engine=ScriptedEngine("x")), early_tools=wrong
        )


async def test_no_tool_starts_in_the_step_that_ends_the_run() -> None:
    journal = Journal()
    engine = ScriptedEngine(asking(("one", "x")), "Done.")
    agent = agent_of(engine, [journal.tool("one")], ["one"], early_stopping_method="generate")
    assert str(await agent.run("Go.", max_iterations=1)) == "Done."
    assert journal.entries == []


async def test_nothing_starts_early_in_llamaindexs_own_workflow() -> None:
    """It would not claim what was started, and the tool would run twice."""
    journal = Journal()
    agent = agent_of(ScriptedEngine(asking(("one", "x")), "Done."), [journal.tool("one")], ["one"])
    await StockAgentWorkflow(agents=[agent]).run("Go.")
    assert journal.entries == ["one begins", "one ends"]


async def test_equal_calls_of_parallel_runs_never_meet() -> None:
    """Ids of calls derive from the prompt, so equal prompts give equal ids."""

    async def whose(text: str) -> str:
        """Says whose run this is."""
        await asyncio.sleep(0.01)
        return USER.get()

    class Repeating(ScriptedEngine):
        def chat(self, request: Any, *, timeout: float | None = None) -> Any:
            asks, answer = self.replies
            chosen = answer if request.messages[-1].role == "tool" else asks
            return ScriptedEngine(chosen).chat(request, timeout=timeout)

    agent = agent_of(Repeating(asking(("whose", "x")), "Done."), [whose], ["whose"])

    async def run(name: str) -> str:
        USER.set(name)
        result = await agent.run("Go.")
        return str(result.tool_calls[0].tool_output.content)

    names = [f"user {n}" for n in range(8)]
    assert await asyncio.gather(*(asyncio.create_task(run(name)) for name in names)) == names


async def test_events_are_those_of_an_agent_without_early_tools() -> None:
    told = []
    for early in ((), ("add",)):
        reply = Message("assistant", "", (asking(("add", "x")).tool_calls[0],), handle="cf1:0:1")
        agent = agent_of(ScriptedEngine(reply, "Done."), [add], early)
        events = await events_of(agent.run("Go."))
        told.append([type(e).__name__ for e in events if not isinstance(e, ToolCall)])
    assert told[0] == told[1]


ACTION = 'Thought: I add.\nAction: one\nAction Input: {"text": "x"}'


async def test_a_react_action_starts_while_the_model_writes_on() -> None:
    journal = Journal()
    engine = SlowEngine(
        journal,
        ACTION + "\n\nI wait for the result now.",
        "Thought: I know.\nAnswer: Done.",
        awaited=["one ends"],
    )
    llm = CacheFriendlyLLM(engine=engine)
    agent = ReActAgent(tools=[journal.tool("one")], llm=llm, early_tools=["one"])
    assert str(await agent.run("Go.")) == "Done."
    assert journal.entries == ["one begins", "one ends", "reply ends"]


async def test_a_react_action_that_changes_after_all_is_run_as_it_ended() -> None:
    """The parser takes all up to the last brace; strict JSON up to there is what may start."""
    journal = Journal()
    engine = ScriptedEngine(
        'Thought: I add.\nAction: one\nAction Input: {"text": "x"} or {"text": "y"}',
        "Thought: I know.\nAnswer: Done.",
    )
    tool = journal.tool("one")
    answers = []
    for early in ([], ["one"]):
        engine.requests.clear()
        agent = ReActAgent(tools=[tool], llm=CacheFriendlyLLM(engine=engine), early_tools=early)
        result = await agent.run("Go.")
        answers.append([call.tool_output.content for call in result.tool_calls])
    assert answers[0] == answers[1]

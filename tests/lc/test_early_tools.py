"""Tools start the moment their arguments are written; whoever asks for their result gets it."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.types import Command, interrupt

from cachefriendly.messages import Message
from cachefriendly.testing import ScriptedEngine
from cachefriendly_lc import CacheFriendlyMiddleware, ChatCacheFriendly
from tests.lc.early import CONFIG, FORMS, Journal, SlowEngine, agent_of, asking, run


@pytest.mark.parametrize("form", FORMS)
async def test_tools_start_before_the_reply_ends_and_run_once(form: str) -> None:
    journal = Journal()
    tools = [journal.tool(name, asynchronous=form[0] == "a") for name in ("one", "two", "late")]
    reply = asking(("one", "x"), ("two", "y"), ("late", "z"))
    engine = SlowEngine(journal, reply, "Done.", awaited=["one ends", "two ends"])
    agent = agent_of(engine, tools, early=["one", tools[1]])
    messages = await run(agent, form)
    assert [m.content for m in messages[2:5]] == ["one of x", "two of y", "late of z"]
    assert messages[-1].content == "Done."
    end = journal.entries.index("reply ends")
    assert {"one ends", "two ends"} <= set(journal.entries[:end])
    assert journal.entries[end + 1 :] == ["late begins", "late ends"]
    assert sorted(journal.entries).count("one begins") == 1


async def test_async_tools_run_on_the_agents_loop_and_sync_tools_in_threads() -> None:
    seen: dict[str, int] = {}

    @tool
    async def on_loop(text: str) -> str:
        """Works."""
        seen["on_loop"] = threading.get_ident()
        return text

    @tool
    def in_thread(text: str) -> str:
        """Works."""
        seen["in_thread"] = threading.get_ident()
        return text

    engine = ScriptedEngine(asking(("on_loop", "x"), ("in_thread", "y")), "Done.")
    agent = agent_of(engine, [on_loop, in_thread], early=[on_loop, in_thread])
    messages = await run(agent, "ainvoke")
    assert [m.content for m in messages[2:4]] == ["x", "y"]
    assert seen["on_loop"] == threading.get_ident() != seen["in_thread"]


@pytest.mark.parametrize("form", ["invoke", "ainvoke"])
@pytest.mark.parametrize("early", [(), ("fails",)])
async def test_an_exception_reaches_the_tool_nodes_own_handling(form: str, early: Any) -> None:
    @tool
    def fails(text: str) -> str:
        """Fails."""
        raise LookupError(text)

    with pytest.raises(LookupError, match="x"):
        await run(agent_of(ScriptedEngine(asking(("fails", "x"))), [fails], early=early), form)


@pytest.mark.parametrize("form", ["invoke", "ainvoke"])
async def test_wrong_arguments_become_the_same_error_message(form: str) -> None:
    @tool
    def strict(text: int) -> str:
        """Works on a number."""
        return str(text)

    told = []
    for early in ((), ("strict",)):
        engine = ScriptedEngine(asking(("strict", "no number")), "Done.")
        messages = await run(agent_of(engine, [strict], early=early), form)
        told.append((messages[2].content, messages[2].status))  # type: ignore[attr-defined]
    assert told[0] == told[1]
    assert told[0][1] == "error"


USER: ContextVar[str] = ContextVar("user", default="nobody")


class Tags(BaseCallbackHandler):
    def __init__(self) -> None:
        self.starts: list[tuple[list[str], Any, Any]] = []

    def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
        metadata = kwargs["metadata"]
        self.starts.append((kwargs["tags"], metadata["mine"], metadata["langgraph_node"]))


@pytest.mark.parametrize("form", FORMS)
async def test_context_and_config_reach_the_tool_as_from_the_tool_node(form: str) -> None:
    seen: list[Any] = []

    @tool
    def look(text: str, config: RunnableConfig) -> str:
        """Looks around."""
        seen.append((USER.get(), config["configurable"]["tenant"], "mine" in config["tags"]))
        return text

    told = []
    for early in ((), ("look",)):
        agent = agent_of(ScriptedEngine(asking(("look", "x")), "Done."), [look], early=early)
        tags = Tags()
        config = {
            "configurable": {"thread_id": "t", "tenant": "blue"},
            "tags": ["mine"],
            "metadata": {"mine": 7},
            "callbacks": [tags],
        }
        token = USER.set("ada")
        await run(agent, form, config)
        USER.reset(token)
        told.append(tags.starts)
    assert seen == [("ada", "blue", True)] * 2
    assert told[0] == told[1] == [(told[0][0][0], 7, "tools")]


async def test_work_that_nobody_claims_is_cancelled() -> None:
    begun, ended = asyncio.Event(), []

    @tool
    async def endless(text: str) -> str:
        """Never ends by itself."""
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return text

    engine = ScriptedEngine(asking(("endless", "x")), stall_at=4)
    agent = agent_of(engine, [endless], early=["endless"])
    task = asyncio.create_task(run(agent, "ainvoke"))
    await asyncio.wait_for(begun.wait(), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert ended == ["cancelled"]


async def test_a_run_that_another_middleware_left_unclaimed_ends_with_the_next_model_call() -> None:
    ended = []

    @tool
    async def endless(text: str) -> str:
        """Never ends by itself."""
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return text

    class RenameCalls(AgentMiddleware[Any, Any, Any]):
        """Outside of ours, so that it changes the reply after we have seen it."""

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            response = await handler(request)
            await asyncio.sleep(0)  # the tool begins
            for call in response.result[0].tool_calls:
                call["id"] = "other"
                call["name"] = "short"
            return response

    @tool
    def short(text: str) -> str:
        """Works."""
        return text

    model = ChatCacheFriendly(engine=ScriptedEngine(asking(("endless", "x")), "Done."))
    mine = CacheFriendlyMiddleware(model, early_tools=["endless"])
    agent: Any = create_agent(model, [endless, short], middleware=[RenameCalls(), mine])
    done = await agent.ainvoke({"messages": [HumanMessage("Go.")]})
    assert [m.content for m in done["messages"][2:]] == ["x", "Done."]
    await asyncio.sleep(0)
    assert ended == ["cancelled"]
    assert not mine._turns


async def test_a_call_that_the_reply_does_not_make_after_all_is_cancelled_and_not_claimed() -> None:
    journal = Journal()

    class DropCalls(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            response = handler(request)
            response.result[0] = response.result[0].model_copy(update={"tool_calls": []})
            return response

    engine = SlowEngine(journal, asking(("one", "x")), awaited=["one ends"])
    agent = agent_of(engine, [journal.tool("one")], DropCalls(), early=["one"])
    messages = await run(agent, "invoke")
    assert [m.type for m in messages] == ["human", "ai"]
    assert journal.entries == ["one begins", "one ends", "reply ends"]


async def test_a_retry_of_another_middleware_runs_the_tool_again() -> None:
    attempts: list[str] = []

    @tool
    def shaky(text: str) -> str:
        """Fails once."""
        attempts.append(text)
        if len(attempts) == 1:
            raise ConnectionError
        return text

    engine = ScriptedEngine(asking(("shaky", "x")), "Done.")
    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
    messages = await run(agent_of(engine, [shaky], retry, early=["shaky"]), "invoke")
    assert messages[2].content == "x"
    assert attempts == ["x", "x"]


def test_a_tool_that_interrupts_is_resumed_where_the_graph_can_resume_it() -> None:
    @tool
    def confirm(text: str) -> str:
        """Asks a human."""
        return f"{text}: {interrupt('sure?')}"

    engine = ScriptedEngine(asking(("confirm", "x")), "Done.")
    agent = agent_of(engine, [confirm], early=["confirm"])
    stopped = agent.invoke({"messages": [HumanMessage("Go.")]}, CONFIG)
    assert stopped["__interrupt__"][0].value == "sure?"
    done = agent.invoke(Command(resume="yes"), CONFIG)
    assert [m.content for m in done["messages"][2:]] == ["x: yes", "Done."]


async def test_equal_calls_of_two_runs_never_meet() -> None:
    """Ids of calls derive from the prompt, so equal prompts give equal ids."""

    @tool
    async def whose(text: str, config: RunnableConfig) -> str:
        """Says whose run this is."""
        await asyncio.sleep(0.01)
        return str(config["configurable"]["thread_id"])

    agent = agent_of(Repeating(asking(("whose", "x"))), [whose], early=["whose"])
    names = [f"thread {n}" for n in range(8)]
    runs = (run(agent, "ainvoke", {"configurable": {"thread_id": name}}) for name in names)
    assert [messages[2].content for messages in await asyncio.gather(*runs)] == names


class Repeating(ScriptedEngine):
    """Asks for the same tool call in every conversation, and answers once it has the result."""

    def __init__(self, asks: Message) -> None:
        super().__init__(asks, "Done.")

    def chat(self, request: Any, *, timeout: float | None = None) -> Any:
        asks, answer = self.replies
        chosen = answer if request.messages[-1].role == "tool" else asks
        return ScriptedEngine(chosen).chat(request, timeout=timeout)

"""`StateDiffAgentState` against `AgentState`: the same programs, the same messages at any point."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain.agents.structured_output import ProviderStrategy
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, Overwrite
from pydantic import BaseModel

from cachefriendly import Message, ToolCall
from cachefriendly.testing import ScriptedEngine
from cachefriendly_lc import ChatCacheFriendly, StateDiffAgentState
from tests.lc.tool_box import add

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def agent_of(schema: Any, saver: Any, *middleware: Any, **options: Any) -> Any:
    """Calls two tools at once, then answers; again and again."""
    calls = tuple(ToolCall("add", {"a": a, "b": 1}, f"c{a}") for a in (1, 2))
    replies = [Message("assistant", "", calls), Message("assistant", "Done.")] * 40
    model = ChatCacheFriendly(engine=ScriptedEngine(*replies))
    return create_agent(
        model,
        [add],
        state_schema=schema,
        checkpointer=saver,
        middleware=middleware,
        **options,
    )


@pytest.fixture(params=["memory", "sqlite"])
def savers(request: pytest.FixtureRequest) -> Iterator[list[Any]]:
    """Two, one for each schema."""
    if request.param == "memory":
        yield [InMemorySaver(), InMemorySaver()]
        return
    with (
        closing(sqlite3.connect(":memory:", check_same_thread=False)) as first,
        closing(sqlite3.connect(":memory:", check_same_thread=False)) as second,
    ):
        yield [SqliteSaver(first), SqliteSaver(second)]


def ask(agent: Any, text: str, config: Any = CONFIG, **options: Any) -> None:
    agent.invoke({"messages": [HumanMessage(text)]}, config, **options)


def seen(messages: Any) -> list[tuple[str, str]]:
    return [(message.type, message.text) for message in messages]


def timeline(agent: Any) -> list[Any]:
    """Every checkpoint's messages, newest first, and what would run next."""
    return [
        (seen(state.values.get("messages", [])), state.next)
        for state in agent.get_state_history(CONFIG)
    ]


def some_turns(agent: Any) -> None:
    for number in range(4):
        ask(agent, f"question {number}")


def edits(agent: Any) -> None:
    some_turns(agent)
    first, *_, answer = agent.get_state(CONFIG).values["messages"]
    agent.update_state(CONFIG, {"messages": [HumanMessage("edited", id=first.id)]})
    agent.update_state(CONFIG, {"messages": [RemoveMessage(answer.id)]}, as_node="tools")
    ask(agent, "after the edits")


def new_beginnings(agent: Any) -> None:
    some_turns(agent)
    everything = RemoveMessage(REMOVE_ALL_MESSAGES)
    agent.update_state(CONFIG, {"messages": [everything, HumanMessage("a summary")]})
    ask(agent, "after the summary")
    agent.update_state(CONFIG, {"messages": Overwrite([HumanMessage("overwritten")])})
    ask(agent, "after the overwrite")


def forks(agent: Any) -> None:
    some_turns(agent)
    history = list(agent.get_state_history(CONFIG))
    ask(agent, "from the middle", history[len(history) // 2].config)
    agent.invoke(None, history[-3].config)  # a retry
    fork = agent.update_state(history[4].config, {"messages": [HumanMessage("forked")]})
    ask(agent, "on the fork", fork)
    ask(agent, "on the newest")


def loose_forms(agent: Any) -> None:
    for form in ({"role": "user", "content": "a dict"}, ("user", "a tuple"), "a text"):
        agent.invoke({"messages": [form]}, CONFIG)
        agent.invoke({"messages": form}, CONFIG)


@pytest.mark.parametrize("program", [some_turns, edits, new_beginnings, forks, loose_forms])
def test_a_program_has_the_same_messages_at_every_checkpoint(
    savers: list[Any], program: Any
) -> None:
    agents = [
        agent_of(*pair) for pair in zip((AgentState, StateDiffAgentState), savers, strict=True)
    ]
    for agent in agents:
        program(agent)
    lists, diffs = (timeline(agent) for agent in agents)
    assert diffs == lists
    assert len(lists) >= 20
    ids = [message.id for message in agents[1].get_state(CONFIG).values["messages"]]
    assert all(ids)
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("durability", ["async", "exit"])
def test_durability_changes_no_message(savers: list[Any], durability: Any) -> None:
    agents = [
        agent_of(*pair) for pair in zip((AgentState, StateDiffAgentState), savers, strict=True)
    ]
    for agent in agents:
        for number in range(3):
            ask(agent, f"question {number}", durability=durability)
    lists, diffs = (timeline(agent) for agent in agents)
    assert diffs == lists
    assert len(lists[0][0]) == 15


def test_approved_edited_and_refused_calls(savers: list[Any]) -> None:
    edited = {"name": "add", "args": {"a": 7, "b": 7}}
    decisions = [
        {"type": "edit", "edited_action": edited},
        {"type": "reject", "message": "no"},
    ]
    found = []
    for schema, saver in zip((AgentState, StateDiffAgentState), savers, strict=True):
        agent = agent_of(schema, saver, HumanInTheLoopMiddleware({"add": True}))
        for number in range(2):
            ask(agent, f"question {number}")
            agent.invoke(Command(resume={"decisions": decisions}), CONFIG)
        found.append(timeline(agent))
    assert found[0] == found[1]
    assert any(kind == "tool" and text.endswith("14") for kind, text in found[1][0][0])


async def test_async_runs_on_a_file(tmp_path: Any) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.sqlite")) as saver:
        agent = agent_of(StateDiffAgentState, saver)
        for number in range(3):
            await agent.ainvoke({"messages": [HumanMessage(f"question {number}")]}, CONFIG)
        messages = (await agent.aget_state(CONFIG)).values["messages"]
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.sqlite")) as saver:
        again = (await agent_of(StateDiffAgentState, saver).aget_state(CONFIG)).values["messages"]
    assert len(messages) == 15
    assert again == messages


def test_a_thread_may_change_its_schema_and_back(savers: list[Any]) -> None:
    for number, schema in enumerate((AgentState, StateDiffAgentState, AgentState)):
        ask(agent_of(schema, savers[0]), f"question {number}")
    for schema in (AgentState, StateDiffAgentState):
        messages = agent_of(schema, savers[0]).get_state(CONFIG).values["messages"]
        assert seen(messages)[::5] == [("human", f"question {number}") for number in range(3)]
        assert len(messages) == 15


def test_fields_of_your_own_and_structured_answers() -> None:
    class Mine(StateDiffAgentState):
        user: str

    class Answer(BaseModel):
        total: int

    model = ChatCacheFriendly(engine=ScriptedEngine('{"total": 5}'))
    agent = create_agent(
        model,
        state_schema=Mine,
        response_format=ProviderStrategy(Answer),
        checkpointer=InMemorySaver(),
    )
    done = agent.invoke({"messages": [HumanMessage("2 + 3?")], "user": "ada"}, CONFIG)
    assert done["structured_response"] == Answer(total=5)
    assert agent.get_state(CONFIG).values["user"] == "ada"


def test_what_a_node_writes_is_kept_as_it_is() -> None:
    """Known differences of LangGraph's reducer for diffs: each harmless, each seen here."""

    class Writes(AgentMiddleware[Any, Any, Any]):
        def after_model(self, state: Any, runtime: Any) -> Any:
            chunk = AIMessageChunk(content="part", id="chunk")
            return {"messages": [chunk, RemoveMessage("nobody")]}

    model = ChatCacheFriendly(engine=ScriptedEngine("Hello."))
    agent = create_agent(
        model, state_schema=StateDiffAgentState, middleware=[Writes()], checkpointer=InMemorySaver()
    )
    ask(agent, "hi")
    last = agent.get_state(CONFIG).values["messages"][-1]
    assert isinstance(last, AIMessageChunk)  # add_messages makes it an AIMessage
    assert isinstance(last, AIMessage)
    assert last.text == "part"  # and refuses to remove a message that is not there


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
def test_the_older_react_agent_takes_the_state_too() -> None:
    from langgraph.prebuilt import create_react_agent

    call = ToolCall("add", {"a": 2, "b": 3}, "c1")
    talks = []
    for options in ({}, {"state_schema": StateDiffAgentState}):
        engine = ScriptedEngine(Message("assistant", "", (call,)), "It is 5.", "Yes.")
        saver = InMemorySaver()
        model = ChatCacheFriendly(engine=engine)
        agent: Any = create_react_agent(model, [add], checkpointer=saver, **options)
        for text in ("2 + 3?", "Sure?"):
            done = agent.invoke({"messages": [HumanMessage(text)]}, CONFIG)
        assert done.keys() == {"messages"}
        talks.append([(m.type, m.text) for m in agent.get_state(CONFIG).values["messages"]])
    assert talks[0] == talks[1]
    assert len(talks[1]) == 6
    copies = [data for key, (_, data) in saver.blobs.items() if key[2] == "messages" and data]
    assert len(copies) == 1  # where the thread begins, not at each of its steps

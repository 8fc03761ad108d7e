"""Threads with diffs are copied, pruned and deleted whole, or refused: never emptied in silence."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from cachefriendly.errors import StateError
from cachefriendly_lc import StateDiffAgentState
from cachefriendly_lc.state_copy import copy_thread
from tests.lc.test_state_agent import CONFIG, agent_of, ask, seen, timeline

COPY: Any = {"configurable": {"thread_id": "copy"}}


@pytest.fixture(params=["memory", "sqlite"])
def saver(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "memory":
        yield InMemorySaver()
        return
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield SqliteSaver(connection)


def begun(saver: Any, turns: int = 4) -> Any:
    agent = agent_of(StateDiffAgentState, saver)
    for number in range(turns):
        ask(agent, f"question {number}")
    return agent


def messages(agent: Any, config: Any = CONFIG) -> Any:
    return agent.get_state(config).values.get("messages", [])


def test_a_copy_is_the_thread_at_every_checkpoint_and_apart_from_it(saver: Any) -> None:
    agent = begun(saver)
    middle = list(agent.get_state_history(CONFIG))[7].config
    ask(agent, "on a branch", middle)
    before = timeline(agent)
    assert copy_thread(agent, "t", "copy") == len(before)
    assert [seen(s.values.get("messages", [])) for s in agent.get_state_history(COPY)] == [
        at for at, _ in before
    ]
    ask(agent, "only in the copy", COPY)
    assert timeline(agent) == before
    assert messages(agent, COPY)[: len(messages(agent))] == messages(agent)


def test_the_copy_of_the_newest_state_alone_goes_on_without_the_old_thread(saver: Any) -> None:
    agent = begun(saver, turns=28)  # over 100 updates: there is a second full copy
    whole = messages(agent)
    taken = copy_thread(agent, "t", "copy", newest_only=True)
    assert taken < 20 < len(list(agent.get_state_history(CONFIG)))
    saver.delete_thread("t")
    assert messages(agent, COPY) == whole
    ask(agent, "more", COPY)
    assert messages(agent, COPY)[: len(whole)] == whole
    assert len(messages(agent, COPY)) == len(whole) + 5


def test_an_interrupted_thread_is_copied_with_what_it_waits_for(saver: Any) -> None:
    agent = agent_of(StateDiffAgentState, saver, interrupt_before=["tools"])
    ask(agent, "wait")
    copy_thread(agent, "t", "copy", newest_only=True)
    assert agent.get_state(COPY).next == agent.get_state(CONFIG).next == ("tools", "tools")
    agent.invoke(None, COPY)
    assert seen(messages(agent, COPY))[2:4] == [("tool", "2"), ("tool", "3")]
    assert len(messages(agent)) == 2


def test_subgraphs_are_copied_too() -> None:
    saver = InMemorySaver()
    inner = agent_of(StateDiffAgentState, True)
    graph = StateGraph(StateDiffAgentState)
    graph.add_node("inner", inner)
    graph.add_edge(START, "inner")
    graph.add_edge("inner", END)
    outer = graph.compile(checkpointer=saver)
    for number in range(2):
        outer.invoke({"messages": [HumanMessage(f"question {number}")]}, CONFIG)
    copy_thread(outer, "t", "copy", newest_only=True)
    saver.delete_thread("t")
    outer.invoke({"messages": [HumanMessage("question 2")]}, COPY)
    assert len(messages(outer, COPY)) == 15


def test_copies_that_cannot_be_made_are_refused(saver: Any) -> None:
    agent = begun(saver, turns=1)
    with pytest.raises(StateError, match="there is no thread 'nobody'"):
        copy_thread(agent, "nobody", "copy")
    copy_thread(agent, "t", "copy")
    with pytest.raises(StateError, match="'copy' exists"):
        copy_thread(agent, "t", "copy")
    with pytest.raises(StateError, match="no checkpointer"):
        copy_thread(agent_of(StateDiffAgentState, None), "t", "copy")


def head_by_hand(saver: Any) -> None:
    """What a naive copy or prune keeps: the newest checkpoint alone."""
    newest = saver.get_tuple(CONFIG)
    place = {"configurable": {"thread_id": "copy", "checkpoint_ns": ""}}
    saver.put(place, newest.checkpoint, newest.metadata, newest.checkpoint["channel_versions"])


def test_a_newest_checkpoint_alone_is_refused(saver: Any) -> None:
    agent = begun(saver)
    head_by_hand(saver)
    with pytest.raises(StateError, match=r"channel 'messages': checkpoints .* are missing"):
        agent.get_state(COPY)
    with pytest.raises(StateError):
        ask(agent, "go on", COPY)


def test_a_deleted_thread_begins_anew(saver: Any) -> None:
    agent = begun(saver)
    saver.delete_thread("t")
    assert agent.get_state(CONFIG).values == {}
    ask(agent, "hello again")
    assert seen(messages(agent))[0] == ("human", "hello again")
    assert len(messages(agent)) == 5


OFFERED: list[tuple[str, Callable[[Any], Any]]] = [
    ("copy_thread", lambda saver: saver.copy_thread("t", "copy")),
    ("prune", lambda saver: saver.prune(["t"], strategy="keep_latest")),
    ("delete_for_runs", lambda saver: saver.delete_for_runs(["nobody"])),
]


@pytest.mark.parametrize(("name", "use"), OFFERED, ids=[name for name, _ in OFFERED])
def test_what_the_savers_offer_beyond_deleting_keeps_the_state_or_refuses(
    saver: Any, name: str, use: Callable[[Any], Any]
) -> None:
    """None of the three exists in these savers; one that comes must keep what can be read."""
    agent = begun(saver)
    before = messages(agent)
    try:
        use(saver)
    except NotImplementedError:
        return
    assert messages(agent) == before
    if name == "copy_thread":
        assert messages(agent, COPY) == before

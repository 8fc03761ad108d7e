"""Any point of a thread can be gone on from, with its ids, and only what is new is forwarded."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from cachefriendly import MissReason
from cachefriendly.prefix import common_prefix
from tests.lc.thread import CONFIG, Thread, asking, held, thread_on
from tests.prompt.another_process import SPELLED


@pytest.fixture(params=["memory", "sqlite"])
def saver(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "memory":
        yield InMemorySaver()
        return
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield SqliteSaver(connection)


@pytest.fixture
def thread(saver: Any) -> Iterator[Thread]:
    """After two questions, four model calls."""
    with thread_on(saver) as thread:
        for text in ("one?", "two?"):
            thread.run(asking(text))
        yield thread


def test_every_checkpoint_gives_the_prompt_of_its_time(thread: Thread) -> None:
    waiting = [state for state in reversed(thread.history()) if state.next == ("model",)]
    assert [thread.prompt_ids(state) for state in waiting] == [c.prompt_ids for c in thread.calls]


def test_a_retry_forwards_one_token(thread: Thread) -> None:
    before = next(state for state in thread.history() if state.next == ("model",))
    (again,) = thread.run(None, before.config, calls=False)
    assert again.prompt_ids == thread.calls[3].prompt_ids
    assert again.report.prefilled_tokens == 1


def test_a_fork_and_the_branch_it_left_both_go_on(thread: Thread) -> None:
    history = thread.history()
    head, first = [state for state in history if not state.next]
    fork, _ = thread.run(asking("two, differently?"), first.config)
    assert fork.prompt_ids[: len(held(thread.calls[1]))] == held(thread.calls[1])
    back, _ = thread.run(asking("three?"), head.config)
    assert back.prompt_ids[: len(held(thread.calls[3]))] == held(thread.calls[3])
    assert back.report.losses == ()
    newest, _ = thread.run(asking("four?"))
    assert newest.prompt_ids[: len(held(thread.calls[7]))] == held(thread.calls[7])


def test_an_edited_question_is_asked_again_from_its_checkpoint(thread: Thread) -> None:
    asked = [state for state in thread.history() if state.next == ("model",)][1]
    old = asked.values["messages"][-1]
    assert old.text == "two?"
    edited = thread.agent.update_state(asked.config, asking("too?", id=old.id))
    assert thread.agent.get_state(edited).next == ("model",)
    call, _ = thread.run(None, edited)
    shared = common_prefix(call.prompt_ids, thread.calls[2].prompt_ids)
    assert call.report.reused_tokens == shared >= len(held(thread.calls[1]))
    assert len(thread.agent.get_state(CONFIG).values["messages"]) == 8


def test_an_edit_of_the_past_costs_what_follows_it_and_is_named(thread: Thread) -> None:
    first = thread.agent.get_state(CONFIG).values["messages"][0]
    thread.agent.update_state(CONFIG, asking("One?", id=first.id))
    call, _ = thread.run(asking("three?"))
    assert call.report.reused_tokens == common_prefix(call.prompt_ids, thread.calls[0].prompt_ids)
    assert [loss.reason for loss in call.report.losses] == [MissReason.MESSAGE_EDITED]
    assert call.prompt_ids.count(SPELLED[1]) > 3  # the replies behind it keep their ids


def test_a_paused_agent_is_resumed_from_the_same_checkpoint_twice(saver: Any) -> None:
    with thread_on(saver, interrupt_before=["tools"]) as thread:
        (asked,) = thread.run(asking("one?"))
        paused = thread.agent.get_state(CONFIG).config
        answers = [thread.run(None, paused, calls=False)[0] for _ in range(2)]
    assert answers[0].prompt_ids == answers[1].prompt_ids
    assert answers[0].prompt_ids[: len(held(asked))] == held(asked)
    assert answers[1].report.prefilled_tokens == 1

"""Any point of a thread can be gone on from, with its ids, and only what is new is forwarded.

The replies are spelled as no tokenizer spells them, so that ids can only come from the transcript.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from cachefriendly import ChatResult, Engine, MissReason
from cachefriendly.prefix import common_prefix
from cachefriendly.testing import (
    EmbeddingCount,
    embedding_counter,
    scripted_replies,
    templates,
    tiny_model,
)
from cachefriendly.testing.tokenizer import END_ID
from cachefriendly_lc import ChatCacheFriendly, StateDiffAgentState
from tests.lc.tool_box import add
from tests.lc.usage import forwarded_for, taken
from tests.prompt.another_process import SPELLED, merged_tokenizer

CONFIG: Any = {"configurable": {"thread_id": "t"}}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'


@pytest.fixture(params=["memory", "sqlite"])
def saver(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "memory":
        yield InMemorySaver()
        return
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield SqliteSaver(connection)


class Thread:
    """An agent on a real forward that calls a tool at every question, and all its model calls."""

    def __init__(self, engine: Engine, saver: Any, embedded: EmbeddingCount) -> None:
        self.engine, self.embedded = engine, embedded
        self.model = ChatCacheFriendly(engine=engine, max_tokens=120)
        self.agent = create_agent(
            self.model, [add], state_schema=StateDiffAgentState, checkpointer=saver
        )
        self.calls: list[ChatResult] = []
        self._call = [*engine.tokenizer(CALL).input_ids, END_ID]

    def run(self, value: Any, config: Any = CONFIG, *, calls: bool = True) -> list[ChatResult]:
        """Invoke the agent; its new model calls, each checked against all earlier ones."""
        scripts = [self._call] if calls else []
        started: list[Any] = []
        chat = self.engine.chat
        self.engine.chat = lambda *a, **k: started.append(chat(*a, **k)) or started[-1]  # type: ignore[method-assign,func-returns-value]
        try:
            with scripted_replies(*scripts, [*SPELLED, END_ID]):
                done = self.agent.invoke(value, config)
        finally:
            self.engine.chat = chat  # type: ignore[method-assign]
        results = [call.result() for call in started]
        replies = [m for m in done["messages"] if m.type == "ai"][-len(results) :]
        assert taken(self.embedded) == sum(map(forwarded_for, replies))
        for result in results:
            self._check(result)
        return results

    def _check(self, result: ChatResult) -> None:
        """Only what no earlier call held was forwarded, and the last token of the prompt."""
        shared = (common_prefix(result.prompt_ids, held(call)) for call in self.calls)
        expected = min(max(shared, default=0), len(result.prompt_ids) - 1)
        assert result.report.reused_tokens == expected
        self.calls.append(result)

    def history(self) -> list[Any]:
        return list(self.agent.get_state_history(CONFIG))

    def prompt_ids(self, state: Any) -> tuple[int, ...]:
        request = self.model._prepare(state.values["messages"], None, {"tools": [add]}).request
        return self.engine.prompt_ids(request)


def held(call: ChatResult) -> tuple[int, ...]:
    """What a call left behind: all but the token sampled last, here always a stop token."""
    return (*call.prompt_ids, *call.output_ids)


def asking(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage(text, **fields)]}


@pytest.fixture
def thread(saver: Any) -> Iterator[Thread]:
    """After two questions, four model calls."""
    engine = Engine(tiny_model(vocab_size=1001), merged_tokenizer(templates.NATIVE_TOOLS))
    with engine, embedding_counter(engine.model) as embedded:
        thread = Thread(engine, saver, embedded)
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
    engine = Engine(tiny_model(vocab_size=1001), merged_tokenizer(templates.NATIVE_TOOLS))
    with engine, embedding_counter(engine.model) as embedded:
        thread = Thread(engine, saver, embedded)
        thread.agent.interrupt_before_nodes = ["tools"]
        (asked,) = thread.run(asking("one?"))
        paused = thread.agent.get_state(CONFIG).config
        answers = [thread.run(None, paused, calls=False)[0] for _ in range(2)]
    assert answers[0].prompt_ids == answers[1].prompt_ids
    assert answers[0].prompt_ids[: len(held(asked))] == held(asked)
    assert [answer.report.prefilled_tokens for answer in answers][1] == 1

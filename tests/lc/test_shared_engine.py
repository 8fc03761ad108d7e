"""A supervisor, its sub-agents and a summarizer on one engine: one copy of the weights, and each
conversation keeps its own prefix however the calls of the others fall in between."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from cachefriendly import Engine, EngineConfig
from cachefriendly.testing import byte_tokenizer, scripted_replies, templates, tiny_model
from cachefriendly.testing.tokenizer import END_ID
from cachefriendly_lc import ChatCacheFriendly
from tests.lc.tool_box import add
from tests.lc.usage import cache_read, held_after


def reply(text: str) -> list[int]:
    return [*byte_tokenizer()(text).input_ids, END_ID]


def call(name: str, arguments: str) -> list[int]:
    return reply(f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>')


TURN = [
    call("delegate", '{"task": "add 1 and 2"}'),
    call("add", '{"a": 1, "b": 2}'),
    reply("It is 3."),
    reply("The helper says 3."),
]


@pytest.fixture(params=[True, False], ids=["reuse", "cold"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    tokenizer = byte_tokenizer(templates.NATIVE_TOOLS)
    with Engine(tiny_model("llama"), tokenizer, EngineConfig(reuse=request.param)) as engine:
        yield engine


def team(engine: Engine, *middleware: Any) -> tuple[Any, list[list[AIMessage]]]:
    """A supervisor whose one tool is another agent on the same model; what that one said."""
    model = ChatCacheFriendly(engine=engine, temperature=0, max_tokens=120)
    helper = create_agent(model, [add], system_prompt="You are a helper.")
    said: list[list[AIMessage]] = []

    @tool
    def delegate(task: str) -> str:
        """Give a task to the helper."""
        done = helper.invoke({"messages": [HumanMessage(task)]})["messages"]
        said.append([message for message in done if isinstance(message, AIMessage)])
        return str(done[-1].text)

    supervisor = create_agent(
        model,
        [delegate],
        system_prompt="You are a supervisor.",
        middleware=middleware,
        checkpointer=InMemorySaver(),
    )
    return supervisor, said


def replies_of(state: Any) -> list[AIMessage]:
    return [message for message in state["messages"] if isinstance(message, AIMessage)]


def test_a_supervisor_and_its_helper(engine: Engine) -> None:
    supervisor, helped = team(engine)
    config: Any = {"configurable": {"thread_id": "t"}}
    for _ in range(2):
        with scripted_replies(*TURN):
            state = supervisor.invoke({"messages": [HumanMessage("1 + 2?")]}, config)
    said = replies_of(state)
    assert [message.text for message in said] == ["", "The helper says 3."] * 2
    assert [message.text for message in helped[0]] == ["", "It is 3."]
    if not engine.config.reuse:
        assert engine.stats().reused_tokens == 0
        return
    # The helper ran in between, under the same thread_id; neither lost its place.
    for before, after in pairwise(said):
        assert cache_read(after) == held_after(before)
    assert cache_read(helped[0][1]) == held_after(helped[0][0])
    assert cache_read(helped[1][0]) > cache_read(helped[0][0])


def test_a_summarizer_in_between(engine: Engine) -> None:
    """The stock one, on the agent's own model: its calls are a conversation of their own."""
    model = ChatCacheFriendly(engine=engine, temperature=0, max_tokens=30)
    summarizer = SummarizationMiddleware(
        model,
        trigger=("messages", 5),
        keep=("messages", 1),
        summary_prompt="Summarise:\n{messages}",  # the stock one is longer than the tiny window
    )
    agent = create_agent(model, [], middleware=[summarizer], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    script = [reply("One."), reply("Two."), reply("A summary."), reply("Three."), reply("Four.")]
    said: list[AIMessage] = []
    with scripted_replies(*script):
        for question in ("a?", "b?", "c?", "d?"):
            state = agent.invoke({"messages": [HumanMessage(question)]}, config)
            said.append(replies_of(state)[-1])
    assert [message.text for message in said] == ["One.", "Two.", "Three.", "Four."]
    assert "A summary." in state["messages"][0].text
    if engine.config.reuse:
        assert cache_read(said[1]) == held_after(said[0])
        assert cache_read(said[3]) == held_after(said[2])

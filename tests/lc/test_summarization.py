"""Case 12: a summary forks the live conversation; only its instruction is new to the model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from inspect import signature
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents import middleware as stock
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver

from cachefriendly import ChatRequest, Engine
from cachefriendly.errors import ContextOverflow
from cachefriendly.messages import Message
from cachefriendly.testing import (
    EmbeddingCount,
    ScriptedEngine,
    byte_tokenizer,
    embedding_counter,
    scripted_replies,
    templates,
    tiny_model,
)
from cachefriendly.testing.tokenizer import END_ID
from cachefriendly_lc import CacheFriendlyMiddleware, ChatCacheFriendly, SummarizationMiddleware
from cachefriendly_lc.summarization import INSTRUCTION
from tests.lc.early import CONFIG
from tests.lc.tool_box import add

TOKENIZER = byte_tokenizer(templates.NATIVE_TOOLS)
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
SUMMARY = "Ada knows that 1 + 2 is 3."
WHEN: dict[str, Any] = {"trigger": ("messages", 5), "keep": ("messages", 1)}


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(tiny_model("llama"), TOKENIZER) as tiny:
        yield tiny


@pytest.fixture
def embedded(engine: Engine) -> Iterator[EmbeddingCount]:
    with embedding_counter(engine.model) as count:
        yield count


def agent_with(engine: Engine, kind: Any = SummarizationMiddleware, **options: Any) -> Any:
    model = ChatCacheFriendly(engine=engine, max_tokens=60)
    summaries = kind(model, **{**WHEN, **options})
    return create_agent(
        model,
        [add],
        system_prompt="You are kind.",
        middleware=[summaries, CacheFriendlyMiddleware(model)],
        checkpointer=InMemorySaver(),
    )


async def turn(agent: Any, form: str, text: str, *replies: str) -> list[Any]:
    scripts = [[*TOKENIZER(reply).input_ids, END_ID] for reply in replies]
    told = {"messages": [HumanMessage(text)]}
    with scripted_replies(*scripts):
        if form == "invoke":
            done = await asyncio.to_thread(agent.invoke, told, CONFIG)
        else:
            done = await agent.ainvoke(told, CONFIG)
    messages: list[Any] = done["messages"]
    return messages


@pytest.mark.parametrize("form", ["invoke", "ainvoke"])
async def test_a_summary_prefills_its_instruction_and_nothing_else(
    engine: Engine, embedded: EmbeddingCount, form: str
) -> None:
    agent = agent_with(engine)
    await turn(agent, form, "1 + 2?", CALL, "It is 3.")
    last = engine.last_report
    embedded.reset()
    messages = await turn(agent, form, "Sure?", SUMMARY, "Yes.")
    assert [m.type for m in messages] == ["human", "human", "ai"]
    assert SUMMARY in messages[0].content
    summary, answer = engine.reports()[-2:]
    assert last is not None
    stop = 1  # sampled last, so never forwarded by the call that sampled it
    new = f"\n<|im_start|>user\n{INSTRUCTION}<|im_end|>\n<|im_start|>assistant\n"
    assert summary.prefilled_tokens == stop + len(TOKENIZER(new).input_ids)
    assert summary.reused_tokens == last.prompt_tokens + last.generated_tokens - stop
    assert embedded.tokens == sum(r.forwarded_tokens for r in (summary, answer))
    assert summary.losses == ()


@pytest.mark.parametrize("form", ["invoke", "ainvoke"])
async def test_the_conversation_itself_stays_held(engine: Engine, form: str) -> None:
    agent = agent_with(engine)
    await turn(agent, form, "1 + 2?", CALL, "It is 3.")
    before = engine.last_report
    whole = next(s for s in agent.get_state_history(CONFIG) if len(s.values["messages"]) == 4)
    await turn(agent, form, "Sure?", SUMMARY, "Yes.")
    told = {"messages": [HumanMessage("And 2 + 2?")]}
    plain = create_agent(  # the same thread, without summaries: it goes on where it was
        ChatCacheFriendly(engine=engine, max_tokens=4),
        [add],
        system_prompt="You are kind.",
        checkpointer=agent.checkpointer,
    )
    plain.invoke(told, whole.config)
    after = engine.last_report
    assert before is not None
    assert after is not None
    assert after.reused_tokens >= before.prompt_tokens + before.generated_tokens - 1


def test_a_handle_of_another_namespace_brings_nothing_of_it_here() -> None:
    engine: Any = ScriptedEngine(Message("assistant", "Hi.", handle="cf1:0:1"), "Sum.")
    theirs = ChatCacheFriendly(engine=engine, cache_namespace="tenant")
    reply = theirs.invoke([SystemMessage("A secret."), HumanMessage("Hello")])
    asked_with(engine, messages=[HumanMessage("Hello"), reply])
    assert [m.role for m in engine.requests[-1].messages] == ["user"]


async def test_langchains_own_middleware_keeps_working(engine: Engine) -> None:
    agent = agent_with(
        engine, stock.SummarizationMiddleware, summary_prompt="Sum up: {messages}", **WHEN
    )
    await turn(agent, "invoke", "1 + 2?", CALL, "It is 3.")
    messages = await turn(agent, "invoke", "Sure?", SUMMARY, "Yes.")
    assert SUMMARY in messages[0].content
    assert messages[-1].content == "Yes."


def asked_with(engine: Any, *, messages: Any = None, **options: Any) -> str:
    """What the model is asked for a summary: its last message."""
    summaries = SummarizationMiddleware(ChatCacheFriendly(engine=engine), **WHEN, **options)
    talk = messages or [HumanMessage("Hello"), AIMessage("Hi.")]
    summaries._create_summary(talk)
    return str(engine.requests[-1].messages[-1].content)


def test_a_conversation_that_was_not_had_here_is_summarised_as_langchain_does() -> None:
    engine = ScriptedEngine("A summary.")
    assert "Hello" in asked_with(engine, summary_prompt="Sum up: {messages}")
    assert len(engine.requests[0].messages) == 1


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({}, INSTRUCTION),
        ({"summary_prompt": "Sum up {messages}!"}, "Sum up (the conversation above)!"),
    ],
)
def test_the_instruction_is_langchains_own_default_or_yours(given: Any, asked: str) -> None:
    engine = ScriptedEngine(Message("assistant", "Hi.", handle="cf1:0:1"), "Sum.", "Yes.")
    model = ChatCacheFriendly(engine=engine)
    summaries = SummarizationMiddleware(
        model, trigger=("messages", 3), keep=("messages", 1), **given
    )
    agent = create_agent(model, [add], middleware=[summaries], checkpointer=InMemorySaver())
    for text in ("Hello", "Sure?"):
        agent.invoke({"messages": [HumanMessage(text)]}, CONFIG)
    summary = engine.requests[1]
    assert [m.role for m in summary.messages] == ["user", "assistant", "user"]
    assert summary.messages[-1].content == asked
    assert [tool.name for tool in summary.tools] == ["add"]
    assert summary.tool_choice == "none"


class Narrow(ScriptedEngine):
    """Has no room for anything but a conversation's first message and its reply."""

    def chat(self, request: ChatRequest, *, timeout: float | None = None) -> Any:
        if len(request.messages) > 2:
            raise ContextOverflow("no room")
        return super().chat(request, timeout=timeout)


@pytest.mark.parametrize("form", ["invoke", "ainvoke"])
async def test_what_does_not_fit_the_window_is_summarised_as_langchain_does(form: str) -> None:
    engine = Narrow(Message("assistant", "Hi.", handle="cf1:0:1"), "Sum.", "Yes.")
    model = ChatCacheFriendly(engine=engine)
    when: dict[str, Any] = {"trigger": ("messages", 3), "keep": ("messages", 1)}
    summaries = SummarizationMiddleware(model, **when, summary_prompt="Sum up: {messages}")
    agent: Any = create_agent(model, [], middleware=[summaries], checkpointer=InMemorySaver())
    for text in ("Hello", "Sure?"):
        told = {"messages": [HumanMessage(text)]}
        done = (
            await agent.ainvoke(told, CONFIG) if form == "ainvoke" else agent.invoke(told, CONFIG)
        )
    assert [len(request.messages) for request in engine.requests] == [1, 1, 2]
    assert "Hello" in engine.requests[1].messages[0].content
    assert done["messages"][-1].content == "Yes."


@pytest.mark.skipif(
    "summarizer" not in signature(stock.SummarizationMiddleware).parameters,
    reason="this version of LangChain takes no summarizer",
)
def test_a_summarizer_of_your_own_is_asked_as_langchain_does() -> None:
    engine = ScriptedEngine("Hi.")
    model = ChatCacheFriendly(engine=engine)
    own: Any = {"summarizer": lambda messages: f"{len(messages)} told"}
    summaries = SummarizationMiddleware(model, **WHEN, **own)
    assert summaries._create_summary([HumanMessage("Hello"), AIMessage("Hi.")]) == "2 told"
    assert engine.requests == []

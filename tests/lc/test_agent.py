"""`create_agent` with tools and a checkpointer: every model call forwards only what is new."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from cachefriendly import Engine
from cachefriendly.errors import RequestError
from cachefriendly.messages import Message, ToolCall
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
from cachefriendly_lc import CacheFriendlyMiddleware, ChatCacheFriendly
from tests.lc.tool_box import add, get_weather
from tests.lc.usage import cache_read, forwarded_for, held_after, taken


class CallFirst(AgentMiddleware[Any, Any, Any]):
    """Forces a tool call as the first step of each turn: 135M parameters rarely call unasked."""

    def _forced(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        if isinstance(request.messages[-1], HumanMessage):
            return request.override(tool_choice="any", model_settings={"max_tokens": 40})
        return request.override(tool_choice="none", model_settings={"max_tokens": 10})

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[Any], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        return handler(self._forced(request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[Any], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        return await handler(self._forced(request))


QUESTIONS = ("What is the weather in Paris?", "What is 2 plus 3?")


async def run_turn(agent: Any, question: str, config: Any, form: str) -> list[AIMessage]:
    """One turn; the AI messages of the whole conversation so far."""
    turn = {"messages": [HumanMessage(question)]}
    if form == "invoke":
        agent.invoke(turn, config)
    elif form == "ainvoke":
        await agent.ainvoke(turn, config)
    elif form == "stream":
        list(agent.stream(turn, config, stream_mode="messages"))
    else:
        [part async for part in agent.astream(turn, config, stream_mode="messages")]
    messages = agent.get_state(config).values["messages"]
    return [message for message in messages if isinstance(message, AIMessage)]


@pytest.mark.parametrize("form", ["invoke", "ainvoke", "stream", "astream"])
async def test_each_call_of_the_loop_forwards_only_what_is_new(
    demo_chat: ChatCacheFriendly, embedded: EmbeddingCount, form: str
) -> None:
    agent = create_agent(
        demo_chat,
        [get_weather, add],
        system_prompt="You are a helpful assistant.",
        middleware=[CallFirst()],
        checkpointer=InMemorySaver(),
    )
    config = {"configurable": {"thread_id": "t"}}
    replies: list[AIMessage] = []
    for question in QUESTIONS:
        known = len(replies)
        replies = await run_turn(agent, question, config, form)
        assert len(replies) == known + 2
        assert replies[known].tool_calls
        assert not replies[known + 1].tool_calls
        assert taken(embedded) == sum(map(forwarded_for, replies[known:]))
    assert cache_read(replies[0]) == 0
    for before, after in pairwise(replies):
        assert cache_read(after) == held_after(before)


async def test_an_agent_that_signs_its_replies_keeps_the_cache(
    demo_chat: ChatCacheFriendly,
) -> None:
    agent = create_agent(
        demo_chat,
        [get_weather],
        middleware=[CallFirst()],
        checkpointer=InMemorySaver(),
        name="bob",
    )
    config = {"configurable": {"thread_id": "t"}}
    asked, answered = await run_turn(agent, QUESTIONS[0], config, "invoke")
    assert asked.name == "bob"
    assert cache_read(answered) == held_after(asked)


@pytest.mark.parametrize("form", ["invoke", "ainvoke"])
async def test_middleware_prefills_the_scaffold_of_a_tool_result(
    demo_chat: ChatCacheFriendly, embedded: EmbeddingCount, form: str
) -> None:
    def agent_with(*middleware: Any) -> Any:
        model = demo_chat.model_copy(update={"cache_namespace": f"{form} {len(middleware)}"})
        return create_agent(
            model,
            [get_weather, add],
            middleware=[*(kind(model) for kind in middleware), CallFirst()],
            checkpointer=InMemorySaver(),
        )

    config = {"configurable": {"thread_id": "t"}}
    stock = await run_turn(agent_with(), QUESTIONS[0], config, form)
    without = taken(embedded)
    ahead = await run_turn(agent_with(CacheFriendlyMiddleware), QUESTIONS[0], config, form)
    assert taken(embedded) == without  # the same work, earlier
    assert [m.content for m in ahead] == [m.content for m in stock]
    assert cache_read(ahead[-1]) > cache_read(stock[-1])


async def test_tools_in_another_order_cost_nothing(demo_chat: ChatCacheFriendly) -> None:
    class Shuffle(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            turned = request.tools[:: -1 if len(request.messages) > 1 else 1]
            return handler(request.override(tools=turned))

    agent = create_agent(
        demo_chat,
        [get_weather, add],
        middleware=[Shuffle(), CacheFriendlyMiddleware(demo_chat), CallFirst()],
        checkpointer=InMemorySaver(),
    )
    asked, answered = await run_turn(
        agent, QUESTIONS[0], {"configurable": {"thread_id": "t"}}, "invoke"
    )
    assert cache_read(answered) >= held_after(asked)


def test_an_early_prefill_that_fails_is_logged_without_user_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    call = ToolCall("add", {"a": 1, "b": 2}, "c1")
    engine = ScriptedEngine(Message("assistant", "", (call,)), "Done.")
    model = ChatCacheFriendly(engine=engine)

    def refuse(request: Any, *, awaiting: Any) -> Any:
        raise RequestError("cannot serve: my secret")

    engine.prefill = refuse  # type: ignore[method-assign]
    agent = create_agent(model, [add], middleware=[CacheFriendlyMiddleware(model)])
    with caplog.at_level("DEBUG", logger="cachefriendly_lc"):
        done = agent.invoke({"messages": [HumanMessage("1 + 2?")]})
    assert done["messages"][-1].content == "Done."
    assert caplog.messages == ["no early prefill: RequestError"]


@pytest.mark.parametrize("form", ["invoke", "ainvoke", "stream", "astream"])
async def test_the_agents_config_reaches_the_engine(form: str) -> None:
    engine = ScriptedEngine("Hello.")
    agent = create_agent(ChatCacheFriendly(engine=engine), [add], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t7", "cache_namespace": "tenant"}}
    await run_turn(agent, "Hello", config, form)
    assert [(r.session, r.namespace) for r in engine.requests] == [("t7", "tenant")]


class Weather(BaseModel):
    """A weather report."""

    city: str
    degrees: int


@pytest.mark.parametrize("strategy", [ProviderStrategy, ToolStrategy])
def test_structured_response_of_an_agent(demo_chat: ChatCacheFriendly, strategy: Any) -> None:
    model = demo_chat.model_copy(update={"max_tokens": 64})
    agent = create_agent(model, [], response_format=strategy(Weather))
    done = agent.invoke({"messages": [HumanMessage("It is 21 degrees in Paris.")]})
    assert isinstance(done["structured_response"], Weather)


@pytest.mark.parametrize("response_format", [Weather, ProviderStrategy(Weather)])
def test_an_agent_calls_a_tool_and_then_answers_structured(response_format: Any) -> None:
    """Tools and a response format in one request: each reply is a call, or the answer."""
    tokenizer = byte_tokenizer(templates.NATIVE_TOOLS)
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    answer = '{"city": "Paris", "degrees": 21}'
    scripts = [[*tokenizer(text).input_ids, END_ID] for text in (call, answer)]
    with Engine(tiny_model("llama"), tokenizer) as engine:
        model = ChatCacheFriendly(engine=engine, max_tokens=200)
        agent = create_agent(model, [get_weather], response_format=response_format)
        with scripted_replies(*scripts), embedding_counter(engine.model) as seen:
            done = agent.invoke({"messages": [HumanMessage("What is the weather in Paris?")]})
    assert [message.type for message in done["messages"]] == ["human", "ai", "tool", "ai"]
    asked, answered = done["messages"][1::2]
    assert asked.tool_calls[0]["args"] == {"city": "Paris"}
    assert answered.text == answer
    assert done["structured_response"] == Weather(city="Paris", degrees=21)
    assert cache_read(answered) == held_after(asked)
    assert seen.tokens == forwarded_for(asked) + forwarded_for(answered)

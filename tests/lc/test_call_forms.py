"""Every call form builds the same request, carries its config, and cancels when it is left."""

from __future__ import annotations

import asyncio
import copy
import gc
import time
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda

from cachefriendly.config import Sampling
from cachefriendly.engine.engine import Engine
from cachefriendly.errors import RequestError
from cachefriendly.testing import ScriptedEngine, byte_tokenizer, tiny_model
from cachefriendly_lc import ChatCacheFriendly
from cachefriendly_lc.convert import message_from_langchain

TEXT = "one two three"
CONFIG: Any = {"configurable": {"thread_id": "t1", "cache_namespace": "ns", "other": object()}}


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(TEXT)


@pytest.fixture
def model(engine: ScriptedEngine) -> ChatCacheFriendly:
    return ChatCacheFriendly(engine=engine)


async def call_all_forms(model: Any, config: Any, **kwargs: Any) -> list[Any]:
    """The reply of every call form, merged where it is streamed."""
    replies = [
        model.invoke("hi", config, **kwargs),
        await model.ainvoke("hi", config, **kwargs),
        *model.batch(["hi", "hi"], config, **kwargs),
        *(await model.abatch(["hi", "hi"], config, **kwargs)),
    ]
    whole = None
    for chunk in model.stream("hi", config, **kwargs):
        whole = chunk if whole is None else whole + chunk
    awhole = None
    async for chunk in model.astream("hi", config, **kwargs):
        awhole = chunk if awhole is None else awhole + chunk
    return [*replies, whole, awhole]


async def test_replies_are_equal(model: ChatCacheFriendly) -> None:
    replies = await call_all_forms(model, None)
    for reply in replies:
        assert reply.content == TEXT
        assert reply.usage_metadata["input_token_details"] == {
            "cache_read": 12,
            "cache_creation": 8,
        }
        assert reply.response_metadata == {
            "model_name": "scripted",
            "model_provider": "cachefriendly",
            "finish_reason": "stop",
            "cachefriendly": "cf1:0:1",
        }


async def test_requests_are_equal_and_carry_the_config(
    model: ChatCacheFriendly, engine: ScriptedEngine
) -> None:
    await call_all_forms(model, CONFIG, max_tokens=3, stop=["x"])
    await call_all_forms(model.with_config(CONFIG), None, max_tokens=3, stop=["x"])
    bound = model.bind(max_tokens=3, stop=["x"])
    await call_all_forms(RunnableLambda(lambda x: x) | bound, CONFIG)
    assert len(engine.requests) == 24
    assert all(request == engine.requests[0] for request in engine.requests)
    assert engine.requests[0].session == "t1"
    assert engine.requests[0].namespace == "ns"
    assert engine.requests[0].sampling == Sampling(max_tokens=3, stop=("x",))


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
async def test_event_streams_carry_the_config(
    model: ChatCacheFriendly, engine: ScriptedEngine
) -> None:
    assert model.stream_events("hi", CONFIG, version="v3").output.text == TEXT
    stream = await model.astream_events("hi", CONFIG, version="v3")
    assert (await stream.output).text == TEXT
    events = [event async for event in model.astream_events("hi", CONFIG, version="v2")]
    assert events[-1]["data"]["output"].content == TEXT
    assert {request.session for request in engine.requests} == {"t1"}
    assert {request.namespace for request in engine.requests} == {"ns"}


def test_config_does_not_leak(model: ChatCacheFriendly, engine: ScriptedEngine) -> None:
    stream = model.stream("hi", CONFIG)
    next(stream)
    model.invoke("hi")
    assert [request.session for request in engine.requests] == ["t1", None]
    assert [request.namespace for request in engine.requests] == ["ns", ""]


@pytest.mark.parametrize(
    ("configurable", "error"),
    [
        ({"cache_namespace": 3}, "configurable cache_namespace=3 is int"),
        ({"thread_id": ["x"]}, "configurable thread_id=\\['x'\\] is list"),
        ({"adapter": "mine"}, "adapter='mine'"),
    ],
)
def test_wrong_types_are_named(
    model: ChatCacheFriendly, configurable: dict[str, Any], error: str
) -> None:
    with pytest.raises(RequestError, match=error):
        model.invoke("hi", {"configurable": configurable})


def test_namespaces_do_not_share_langchains_reply_cache(engine: ScriptedEngine) -> None:
    model = ChatCacheFriendly(engine=engine, cache=InMemoryCache())
    for namespace in ("a", "b", "a"):
        model.invoke("hi", {"configurable": {"cache_namespace": namespace}})
    model.invoke("hi", {"configurable": {"cache_namespace": "a", "thread_id": "other"}})
    assert [request.namespace for request in engine.requests] == ["a", "b"]


def test_options_of_constructor_bind_and_call(engine: ScriptedEngine) -> None:
    model = ChatCacheFriendly(
        engine=engine,
        temperature=0.5,
        max_new_tokens=7,
        generation_kwargs={"min_new_tokens": 2},
        cache_namespace="mine",
        api_key="ignored",
    )
    model.bind(top_k=4).invoke("hi", seed=1, stop=["a"], generation_kwargs={"top_p": 0.5})
    assert engine.requests[0].namespace == "mine"
    assert engine.requests[0].sampling == Sampling(
        temperature=0.5,
        max_tokens=7,
        top_k=4,
        top_p=0.5,
        seed=1,
        stop=("a",),
        extra={"min_new_tokens": 2},
    )
    for given, expected in (("theirs", "theirs"), ("", ""), (None, "mine")):
        model.invoke("hi", cache_namespace=given)
        assert engine.requests[-1].namespace == expected
    model.invoke("hi", {"configurable": {"cache_namespace": ""}})
    assert engine.requests[-1].namespace == ""


def test_a_pipeline_that_samples_is_made_greedy_by_temperature(engine: ScriptedEngine) -> None:
    model = ChatCacheFriendly(
        engine=engine, temperature=0, generation_kwargs={"do_sample": True, "eos_token_id": 7}
    )
    model.invoke("hi")
    assert engine.requests[0].sampling == Sampling(temperature=0, stop_token_ids=(7,))


def test_last_chunk_alone_carries_usage_and_metadata(model: ChatCacheFriendly) -> None:
    *chunks, last = model.stream("hi")
    assert [chunk.content for chunk in chunks] == ["one ", "two ", "three"]
    assert all(not c.usage_metadata and not c.response_metadata for c in chunks)
    assert last.chunk_position == "last"
    assert last.usage_metadata["total_tokens"] == 25


class Tokens(BaseCallbackHandler):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        self.seen.append(token)


def test_callbacks_hear_each_token_once(engine: ScriptedEngine) -> None:
    for model in (
        ChatCacheFriendly(engine=engine, streaming=True).invoke,
        lambda *a: list(ChatCacheFriendly(engine=engine).stream(*a)),
    ):
        tokens = Tokens()
        model("hi", {"callbacks": [tokens]})
        assert tokens.seen == ["one ", "two ", "three", ""]


def test_closing_a_stream_cancels(model: ChatCacheFriendly, engine: ScriptedEngine) -> None:
    stream = model.stream("hi")
    next(stream)
    assert not engine.calls[0].cancelled
    stream.close()
    assert engine.calls[0].cancelled
    for _ in (model | RunnableLambda(lambda m: m)).stream("hi"):
        break
    gc.collect()
    assert engine.calls[1].cancelled or engine.calls[1].finished


async def test_leaving_an_async_stream_cancels(
    model: ChatCacheFriendly, engine: ScriptedEngine
) -> None:
    async for _ in model.astream("hi"):
        break
    for _ in range(5):
        gc.collect()
        await asyncio.sleep(0)
    assert engine.calls[0].cancelled


async def test_cancelling_the_task_cancels() -> None:
    engine = ScriptedEngine(TEXT, stall_at=1)
    task = asyncio.create_task(ChatCacheFriendly(engine=engine).ainvoke("hi"))
    while not engine.calls:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.calls[0].cancelled


async def test_timeout() -> None:
    """The engine keeps the deadline; every form of a call passes it on."""
    with Engine(tiny_model("llama"), byte_tokenizer()) as engine:
        model = ChatCacheFriendly(engine=engine, timeout=0.05, max_tokens=1500, temperature=0)
        error = r"timeout=0\.05 s; raise the timeout"
        with pytest.raises(TimeoutError, match=error):
            model.invoke("hi")
        with pytest.raises(TimeoutError, match=error):
            await model.ainvoke("hi")
        with pytest.raises(TimeoutError, match=error):
            list(model.stream("hi"))
        with pytest.raises(TimeoutError, match=error):
            async for _ in model.astream("hi"):
                pass
        assert model.invoke("hi", timeout=30, max_tokens=2).usage_metadata["output_tokens"] <= 2
        assert engine.stats().core.running == 0


async def test_async_calls_do_not_block_the_loop() -> None:
    class Slow(ScriptedEngine):
        def chat(self, request: Any, *, timeout: float | None = None) -> Any:
            time.sleep(0.2)  # the first call loads the model
            return super().chat(request, timeout=timeout)

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    ticking = asyncio.create_task(tick())
    await ChatCacheFriendly(engine=Slow(TEXT)).ainvoke("hi")
    ticking.cancel()
    assert ticks > 5


def test_copies_share_the_engine(model: ChatCacheFriendly, engine: ScriptedEngine) -> None:
    llm = object()
    model.llm = llm
    twin = copy.deepcopy(model)
    assert twin.engine is engine
    assert twin.llm is llm
    assert model.model_copy().engine is engine


def test_nothing_of_the_engine_is_traced(model: ChatCacheFriendly) -> None:
    assert "ScriptedEngine" not in repr(model)
    assert "engine" not in model.model_dump()
    assert "ScriptedEngine" not in str(model._serialized)


def test_profile_and_tracing_names(model: ChatCacheFriendly) -> None:
    assert model.profile is not None
    assert model.profile["structured_output"]
    assert model.profile.get("max_input_tokens") == 2048
    assert model._llm_type == "cachefriendly"
    params = model._get_ls_params(stop=["x"])
    assert params["ls_provider"] == "cachefriendly"
    assert params["ls_model_name"] == "scripted"
    assert model._get_ls_params(model="m")["ls_model_name"] == "m"


async def test_content_blocks_come_back_as_the_same_message(engine: ScriptedEngine) -> None:
    model = ChatCacheFriendly(engine=engine, output_version="v1")
    plain = message_from_langchain(ChatCacheFriendly(engine=engine).invoke("hi"))
    for reply in await call_all_forms(model, None):
        assert isinstance(reply.content, list)
        assert message_from_langchain(reply) == plain


def test_batch_returns_errors_when_asked(model: ChatCacheFriendly) -> None:
    good, bad = model.batch(["hi", []], return_exceptions=True)
    assert good.content == TEXT
    assert isinstance(bad, RequestError)


def test_prompt_templates_and_chains(model: ChatCacheFriendly, engine: ScriptedEngine) -> None:
    chain = ChatPromptTemplate.from_messages([("system", "Be {mood}."), ("human", "{q}")]) | model
    chain.invoke({"mood": "brief", "q": "why?"})
    assert [(m.role, m.content) for m in engine.requests[0].messages] == [
        ("system", "Be brief."),
        ("user", "why?"),
    ]

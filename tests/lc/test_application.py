"""What an application puts around a chat model, with the engine's work looked at."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import get_usage_metadata_callback
from langchain_core.globals import set_llm_cache
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    SystemMessage,
    trim_messages,
)

from cachefriendly import Engine, EngineConfig
from cachefriendly.errors import EngineClosed
from cachefriendly.prompt.builder import PromptBuilder
from cachefriendly.testing import byte_tokenizer, embedding_counter, templates, tiny_model
from cachefriendly_lc import ChatCacheFriendly
from tests.lc.forms import FORMS
from tests.lc.usage import cache_read, held_after

MESSAGES = [SystemMessage("Be brief."), HumanMessage("Hello")]


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(tiny_model("llama"), byte_tokenizer()) as engine:
        yield engine


@pytest.fixture
def model(engine: Engine) -> ChatCacheFriendly:
    return ChatCacheFriendly(engine=engine, temperature=0, max_tokens=8)


def fail_once(engine: Engine) -> list[int]:
    """The next forward raises half way; the list counts the forwards that were tried."""
    tried: list[int] = []

    def hook(module: Any, args: Any) -> None:
        tried.append(1)
        if len(tried) == 1:
            raise RuntimeError("the device hiccupped")

    engine.model.get_submodule("model.layers.1").register_forward_pre_hook(hook)
    return tried


@pytest.mark.parametrize("form", ["invoke", "ainvoke", "batch", "abatch"])
async def test_a_retry_is_exact(model: ChatCacheFriendly, form: str) -> None:
    wanted = model.invoke(MESSAGES, cache_namespace="other").content
    tried = fail_once(model.engine)
    retrying = model.with_retry(stop_after_attempt=2, wait_exponential_jitter=False)
    reply = await FORMS[form](retrying, MESSAGES, {})
    assert reply.content == wanted
    assert len(tried) > 1
    again = model.invoke([*MESSAGES, reply, HumanMessage("Why?")])
    assert cache_read(again) == held_after(reply)


@pytest.mark.parametrize("form", ["invoke", "ainvoke", "stream", "astream", "batch", "abatch"])
async def test_a_fallback_takes_over(model: ChatCacheFriendly, form: str) -> None:
    gone = Engine(tiny_model("llama"), byte_tokenizer())
    gone.close()
    chain = ChatCacheFriendly(engine=gone).with_fallbacks(
        [model], exceptions_to_handle=(EngineClosed,)
    )
    reply = await FORMS[form](chain, MESSAGES, {})
    assert reply.content == model.invoke(MESSAGES).content


@pytest.fixture
def reply_cache() -> Iterator[InMemoryCache]:
    cache = InMemoryCache()
    set_llm_cache(cache)
    yield cache
    set_llm_cache(None)


@pytest.mark.parametrize("form", ["invoke", "ainvoke", "batch", "abatch"])
async def test_a_cached_reply_calls_nothing_and_is_recognised_later(
    model: ChatCacheFriendly, reply_cache: InMemoryCache, form: str
) -> None:
    call = FORMS[form]
    first = await call(model, MESSAGES, {"configurable": {"thread_id": "a"}})
    with embedding_counter(model.engine.model) as seen:
        again = await call(model, MESSAGES, {"configurable": {"thread_id": "b"}})
        assert seen.tokens == 0
    assert again.content == first.content
    follow_up = await call(
        model, [*MESSAGES, again, HumanMessage("Why?")], {"configurable": {"thread_id": "b"}}
    )
    assert cache_read(follow_up) == held_after(first)
    # Other settings, another form of answer, another namespace: another entry.
    with embedding_counter(model.engine.model) as seen:
        await call(model.model_copy(update={"max_tokens": 3}), MESSAGES, {})
        assert seen.tokens > 0
        seen.reset()
        await call(model, MESSAGES, {"configurable": {"cache_namespace": "theirs"}})
        assert seen.tokens > len("Hello")


def test_usage_is_counted_by_langchains_own_callback(model: ChatCacheFriendly) -> None:
    with get_usage_metadata_callback() as usage:
        first = model.invoke(MESSAGES)
        list(model.stream([*MESSAGES, first, HumanMessage("Why?")]))
    total = usage.usage_metadata[model.model_name]
    assert total["input_token_details"]["cache_read"] == held_after(first)
    assert total["input_tokens"] > first.usage_metadata["input_tokens"]


@pytest.mark.parametrize("counter", ["model", "method"])
def test_trimming_counts_with_the_models_own_tokens(model: ChatCacheFriendly, counter: str) -> None:
    history = [SystemMessage("Be brief.")]
    history += [kind("word " * 10) for _ in range(6) for kind in (HumanMessage, AIMessage)]
    kept = trim_messages(
        history,
        max_tokens=300,
        token_counter=model if counter == "model" else model.get_num_tokens_from_messages,
        strategy="last",
        include_system=True,
        start_on="human",
    )
    assert isinstance(kept[0], SystemMessage)
    assert isinstance(kept[1], HumanMessage)
    assert model.get_num_tokens_from_messages(kept) <= 300
    assert len(kept) >= 3


def midnights() -> Iterator[datetime]:
    """Another day at every look."""
    day = datetime(2026, 3, 1, 23, 59)
    while True:
        day += timedelta(days=1)
        yield day


@pytest.fixture
def days_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    days = midnights()
    defaults: Any = PromptBuilder.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "now", lambda: next(days))


async def talk_for_days(form: str, handles: bool, **config: Any) -> list[bool]:
    """Whether each later turn reused all that was held, in a template that prints the date."""
    whole: list[bool] = []
    engine = Engine(
        tiny_model("llama"), byte_tokenizer(templates.DATE_NEAR_START), EngineConfig(**config)
    )
    with engine:
        model = ChatCacheFriendly(engine=engine, temperature=0, max_tokens=6)
        history: list[Any] = [HumanMessage("Hello")]
        last: AIMessage | None = None
        for question in ("Why?", "How?", "When?"):
            reply = await FORMS[form](model, history, {"configurable": {"thread_id": "t"}})
            whole += [cache_read(reply) == held_after(last)] if last else []
            history += [reply if handles else AIMessage(reply.text), HumanMessage(question)]
            last = reply
    return whole


@pytest.mark.parametrize("handles", [True, False])
@pytest.mark.parametrize("form", ["invoke", "astream", "abatch", "stream_events_v3"])
@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
async def test_the_date_of_a_conversation_stays(days_pass: None, form: str, handles: bool) -> None:
    assert await talk_for_days(form, handles) == [True, True]


async def test_a_live_clock_breaks_the_prefix(days_pass: None) -> None:
    assert await talk_for_days("invoke", True, clock="live") == [False, False]

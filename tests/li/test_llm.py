"""The LLM against a scripted engine: what it asks for and what it makes of the events."""

from __future__ import annotations

import asyncio
import copy
import pickle
import time
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, TextBlock, ThinkingBlock, ToolCallBlock
from llama_index.core.callbacks import CallbackManager, LlamaDebugHandler
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.settings import Settings
from llama_index.core.tools import FunctionTool

from cachefriendly.config import Sampling
from cachefriendly.errors import Cancelled, ConfigError, RequestError
from cachefriendly.messages import Message, ToolCall
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import CacheFriendlyLLM, HuggingFaceLLM, SimpleChatEngine

REPLY = Message("assistant", "Hel lo", handle="cf1:0:1")
CALLS = Message(
    "assistant",
    "",
    (ToolCall("add", {"b": 1, "a": 2}, "c1"), ToolCall("add", {"a": 3}, "c2")),
    reasoning="think",
    handle="cf1:0:2",
)
HI = [ChatMessage(role="user", content="hi")]


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


ADD = FunctionTool.from_defaults(add)


def test_constructing_loads_nothing() -> None:
    llm = HuggingFaceLLM(
        model_name="no/such-model",
        tokenizer_name="no/such-model",
        context_window=1000,
        max_new_tokens=64,
        generate_kwargs={"do_sample": False},
        system_prompt="Be brief.",
        query_wrapper_prompt="Q: {query_str}",
        stopping_ids=[7],
        tokenizer_kwargs={},
        tokenizer_outputs_to_remove=["token_type_ids"],
        model_kwargs={},
        device_map="auto",
        is_chat_model=True,
        callback_manager=CallbackManager([]),
        completion_to_prompt=None,
        messages_to_prompt=None,
        session_id="s",
        cache_namespace="n",
    )
    assert isinstance(llm, FunctionCallingLLM)
    assert llm.to_payload()["model_name"] == "no/such-model"
    assert pickle.loads(pickle.dumps(llm)).session_id == "s"  # noqa: S301


def test_a_model_is_needed_and_options_are_known() -> None:
    with pytest.raises(ConfigError, match="no model; give engine="):
        CacheFriendlyLLM()
    with pytest.raises(ConfigError, match="unknown option 'max_tokenz'"):
        CacheFriendlyLLM("m", max_tokenz=3)
    with pytest.raises(RequestError, match="temperature=-1"):
        CacheFriendlyLLM("m", generate_kwargs={"temperature": -1})
    with pytest.raises(ConfigError, match="engine=int is no cachefriendly Engine"):
        CacheFriendlyLLM("m", engine=3)


@pytest.mark.parametrize("name", ["messages_to_prompt", "completion_to_prompt"])
def test_a_prompt_function_is_answered_with_one_warning(
    caplog: pytest.LogCaptureFixture, name: str
) -> None:
    llm = CacheFriendlyLLM(engine=ScriptedEngine(REPLY), **{name: str})
    llm.chat(HI)
    copy.deepcopy(llm).complete("hi")
    (text,) = caplog.messages
    assert text.startswith(f"{name} has no effect, it is never called")


def test_metadata() -> None:
    llm = CacheFriendlyLLM(engine=ScriptedEngine(REPLY), context_window=100, max_new_tokens=9)
    meta = llm.metadata
    assert (meta.context_window, meta.num_output, meta.model_name) == (100, 9, "scripted")
    assert meta.is_chat_model
    assert meta.is_function_calling_model


def test_a_context_window_beyond_the_models_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    llm = CacheFriendlyLLM(engine=ScriptedEngine(), context_window=4096)
    assert (llm.metadata.context_window, llm.metadata.context_window) == (2048, 2048)
    assert caplog.messages == [
        "context_window=4096 is more than the 2048 tokens of 'scripted', which hold; leave it out"
    ]


def test_metadata_says_how_long_a_reply_may_be_under_any_name() -> None:
    for name in ("max_new_tokens", "max_tokens"):
        llm = CacheFriendlyLLM(engine=ScriptedEngine(REPLY), generate_kwargs={name: 7})
        assert llm.metadata.num_output == 7


def test_copies_share_the_engine() -> None:
    llm = CacheFriendlyLLM(engine=ScriptedEngine(REPLY))
    assert copy.deepcopy(llm).engine is llm.engine
    assert llm.model_copy(deep=True).engine is llm.engine
    assert llm.tokenize("ab") == [97, 98]


def test_settings_reach_the_request() -> None:
    engine = ScriptedEngine(REPLY)
    llm = CacheFriendlyLLM(
        engine=engine,
        max_new_tokens=9,
        stopping_ids=[7],
        generate_kwargs={"do_sample": False, "repetition_penalty": 1.2, "min_new_tokens": 2},
        session_id="s",
        cache_namespace="n",
    )
    llm.chat(HI)
    llm.chat(HI, session_id="t", cache_namespace="m", max_tokens=3, temperature=0.5, seed=1)
    first, second = engine.requests
    settings = {"repetition_penalty": 1.2, "stop_token_ids": (7,), "extra": {"min_new_tokens": 2}}
    assert first.sampling == Sampling(max_tokens=9, temperature=0.0, **settings)
    assert second.sampling == Sampling(max_tokens=3, temperature=0.5, seed=1, **settings)
    assert (first.session, first.namespace) == ("s", "n")
    assert (second.session, second.namespace) == ("t", "m")
    llm.chat(HI, session_id=None, cache_namespace="")
    assert (engine.requests[2].session, engine.requests[2].namespace) == ("s", "")


async def test_eight_methods_give_the_same_reply() -> None:
    engine = ScriptedEngine(REPLY)
    llm = CacheFriendlyLLM(engine=engine)
    whole = [llm.chat(HI), await llm.achat(HI)]
    chunks = [list(llm.stream_chat(HI)), [c async for c in await llm.astream_chat(HI)]]
    for response in [*whole, *(chunk[-1] for chunk in chunks)]:
        assert response.message.content == "Hel lo"
        assert response.message.additional_kwargs == {"cachefriendly": "cf1:0:1"}
        assert response.raw["usage"]["prompt_tokens_details"] == {"cached_tokens": 12}
    for stream in chunks:
        assert [c.delta for c in stream] == ["Hel ", "lo", ""]
        assert [c.message.content for c in stream[:2]] == ["Hel ", "Hel lo"]
        assert [c.raw for c in stream[:2]] == [None, None]
    texts = [llm.complete("hi").text, (await llm.acomplete("hi")).text]
    pieces = [
        list(llm.stream_complete("hi")),
        [c async for c in await llm.astream_complete("hi")],
    ]
    assert texts == ["Hel lo"] * 2
    assert [[c.delta for c in stream] for stream in pieces] == [["Hel ", "lo", ""]] * 2
    assert [stream[1].text for stream in pieces] == ["Hel lo"] * 2
    assert all(request == engine.requests[0] for request in engine.requests)


def test_a_completion_is_one_user_message() -> None:
    engine = ScriptedEngine(REPLY)
    wrap = PromptTemplate("Q: {query_str}")
    llm = CacheFriendlyLLM(engine=engine, system_prompt="Be brief.", query_wrapper_prompt=wrap)
    llm.complete("hi")
    llm.complete("hi", formatted=True)
    llm.predict(PromptTemplate("say {x}"), x="hi")
    wrapped, formatted, predicted = (request.messages for request in engine.requests)
    assert wrapped == (Message("system", "Be brief."), Message("user", "Q: hi"))
    assert formatted == (Message("user", "hi"),)
    assert predicted == (Message("system", "Be brief."), Message("user", "say hi"))


def test_a_stream_holds_whole_calls_and_its_last_chunk_holds_all() -> None:
    llm = CacheFriendlyLLM(engine=ScriptedEngine(CALLS))
    chunks = list(llm.stream_chat(HI))
    selections = [llm.get_tool_calls_from_response(c, error_on_no_tool_call=False) for c in chunks]
    assert [len(calls) for calls in selections] == [0, 1, 2, 2]
    assert chunks[0].additional_kwargs == {"thinking_delta": "think"}
    assert [type(block) for block in chunks[-1].message.blocks] == [
        ThinkingBlock,
        ToolCallBlock,
        ToolCallBlock,
    ]
    assert chunks[-1].message.additional_kwargs == {"cachefriendly": "cf1:0:2"}
    assert chunks[-1].raw["finish_reason"] == "tool_calls"
    assert selections[-1][0].tool_kwargs == {"b": 1, "a": 2}


async def test_a_stream_closed_early_cancels_its_call_at_once() -> None:
    """Even while a handler keeps the exception, and with it the frames of the stream."""
    engine = ScriptedEngine(REPLY)
    debug = LlamaDebugHandler(print_trace_on_end=False)
    llm = CacheFriendlyLLM(engine=engine, callback_manager=CallbackManager([debug]))
    for method, argument in ((llm.stream_chat, HI), (llm.stream_complete, "hi")):
        stream = method(argument)
        next(stream)
        stream.close()
        assert engine.calls[-1].cancelled
    for amethod, argument in ((llm.astream_chat, HI), (llm.astream_complete, "hi")):
        astream = await amethod(argument)
        await anext(astream)
        await astream.aclose()
        assert engine.calls[-1].cancelled
    list(llm.stream_chat(HI))
    assert not engine.calls[-1].cancelled


async def test_a_call_cancelled_by_somebody_else_is_no_silent_end() -> None:
    engine = ScriptedEngine(REPLY)
    llm = CacheFriendlyLLM(engine=engine)
    for method, argument in ((llm.stream_chat, HI), (llm.stream_complete, "hi")):
        stream = method(argument)
        next(stream)
        engine.calls[-1].cancel()
        with pytest.raises(Cancelled):
            next(stream)
    for amethod, argument in ((llm.astream_chat, HI), (llm.astream_complete, "hi")):
        astream = await amethod(argument)
        await anext(astream)
        engine.calls[-1].cancel()
        with pytest.raises(Cancelled):
            await anext(astream)


async def test_the_event_loop_runs_while_an_engine_is_opened() -> None:
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

    llm = CacheFriendlyLLM(engine=Slow(REPLY))
    ticking = asyncio.create_task(tick())
    for form in (
        llm.achat(HI),
        llm.astream_chat(HI),
        llm.acomplete("hi"),
        llm.astream_complete("hi"),
    ):
        ticks = 0
        await form
        assert ticks > 5
    ticking.cancel()


def test_tools_reach_the_request() -> None:
    engine = ScriptedEngine(CALLS)
    llm = CacheFriendlyLLM(engine=engine)
    llm.chat_with_tools([ADD], user_msg="add", verbose=False)
    llm.chat_with_tools([ADD], chat_history=HI, tool_required=True)
    llm.chat_with_tools([ADD], chat_history=HI, tool_choice="add")
    assert [request.tool_choice for request in engine.requests] == [
        "auto",
        "required",
        ("name", "add"),
    ]
    assert [tool.name for tool in engine.requests[0].tools] == ["add"]
    assert engine.requests[0].messages == (Message("user", "add"),)


def test_one_call_is_kept_unless_parallel_calls_are_wanted() -> None:
    llm = CacheFriendlyLLM(engine=ScriptedEngine(CALLS))
    one = llm.chat_with_tools([ADD], user_msg="add")
    both = llm.chat_with_tools([ADD], user_msg="add", allow_parallel_tool_calls=True)
    assert [s.tool_id for s in llm.get_tool_calls_from_response(one)] == ["c1"]
    assert [s.tool_id for s in llm.get_tool_calls_from_response(both)] == ["c1", "c2"]
    assert llm.predict_and_call([ADD], user_msg="add").response == "3"


def test_a_reply_without_calls() -> None:
    llm = CacheFriendlyLLM(engine=ScriptedEngine(REPLY))
    response = llm.chat_with_tools([ADD], user_msg="add")
    assert llm.get_tool_calls_from_response(response, error_on_no_tool_call=False) == []
    with pytest.raises(ValueError, match="Expected at least one tool call"):
        llm.get_tool_calls_from_response(response)


async def test_errors_come_when_the_method_is_called() -> None:
    llm = CacheFriendlyLLM(engine=ScriptedEngine(REPLY))
    for method in (llm.chat, llm.stream_chat):
        with pytest.raises(RequestError, match="message list is empty"):
            method([])
    for amethod in (llm.achat, llm.astream_chat):
        with pytest.raises(RequestError, match="message list is empty"):
            await amethod([])
    with pytest.raises(RequestError, match="temperature=nan"):
        llm.complete("hi", temperature=float("nan"))


def test_llama_index_hears_of_every_call() -> None:
    debug = LlamaDebugHandler(print_trace_on_end=False)
    llm = CacheFriendlyLLM(engine=ScriptedEngine(REPLY), callback_manager=CallbackManager([debug]))
    llm.chat(HI)
    list(llm.stream_complete("hi"))
    assert len(debug.get_llm_inputs_outputs()) == 2


async def test_instrumentation_sees_start_progress_and_end() -> None:
    names: list[str] = []

    class Handler(BaseEventHandler):
        def handle(self, event: Any, **kwargs: Any) -> None:
            names.append(event.class_name())

    handler = Handler()
    dispatcher = get_dispatcher()
    dispatcher.add_event_handler(handler)
    try:
        [c async for c in await CacheFriendlyLLM(engine=ScriptedEngine(REPLY)).astream_chat(HI)]
    finally:
        dispatcher.event_handlers.remove(handler)
    assert names == ["LLMChatStartEvent", *["LLMChatInProgressEvent"] * 3, "LLMChatEndEvent"]


def test_it_can_be_the_default_llm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "_llm", None)
    Settings.llm = CacheFriendlyLLM(engine=ScriptedEngine(REPLY))
    assert SimpleChatEngine.from_defaults().chat("hi").response == "Hel lo"


def test_text_blocks_before_calls() -> None:
    reply = Message("assistant", "Sure.", (ToolCall("add", {"a": 1}, "c"),))
    message = CacheFriendlyLLM(engine=ScriptedEngine(reply)).chat(HI).message
    assert [type(block) for block in message.blocks] == [TextBlock, ToolCallBlock]

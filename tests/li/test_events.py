"""Instrumentation: every call is told once from start to end, in values that serialise."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal, TypeAlias

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.callbacks import CallbackManager, LlamaDebugHandler, TokenCountingHandler
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from pydantic import BaseModel, Field

from cachefriendly.errors import Cancelled, RequestError
from cachefriendly.messages import Message, ToolCall
from cachefriendly.testing import SCRIPTED_REPORT, ScriptedEngine
from cachefriendly_li import CacheFriendlyLLM
from tests.li.agents import add

Form: TypeAlias = Callable[[CacheFriendlyLLM], Awaitable[Any]]

REPLY = Message("assistant", "Hel lo", handle="cf1:0:1")
CALL = Message("assistant", "", (ToolCall("City", {"name": "Rome"}, "c1"),), handle="cf1:0:2")
HI = [ChatMessage("hi")]
SAY = PromptTemplate("Say {text}.")


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "Rome"]


ADD = FunctionTool.from_defaults(add)


class Heard(BaseEventHandler):
    """Every event, dumped as a tracer dumps it."""

    names: list[str] = Field(default_factory=list)
    dumps: list[str] = Field(default_factory=list)

    def handle(self, event: Any, **kwargs: Any) -> None:
        if event.class_name() == "SpanDropEvent":
            return  # older cores try a tool with one argument by place before they name it
        self.names.append(event.class_name())
        self.dumps.append(json.dumps(event.model_dump(mode="json", exclude={"output_cls"})))


@pytest.fixture
def heard() -> Iterator[Heard]:
    handler, dispatcher = Heard(), get_dispatcher()
    dispatcher.add_event_handler(handler)
    yield handler
    dispatcher.event_handlers.remove(handler)


async def value(result: Any) -> Any:
    return result


async def drained(stream: Any) -> list[Any]:
    if hasattr(stream, "__await__"):
        stream = await stream
    if hasattr(stream, "__aiter__"):
        return [chunk async for chunk in stream]
    return list(stream)


def told(kind: str, chunks: int = 0) -> list[str]:
    return [f"LLM{kind}StartEvent", *[f"LLM{kind}InProgressEvent"] * chunks, f"LLM{kind}EndEvent"]


FORMS: dict[str, tuple[Form, list[str]]] = {
    "chat": (lambda llm: value(llm.chat(HI)), told("Chat")),
    "achat": (lambda llm: llm.achat(HI), told("Chat")),
    "stream_chat": (lambda llm: drained(llm.stream_chat(HI)), told("Chat", 3)),
    "astream_chat": (lambda llm: drained(llm.astream_chat(HI)), told("Chat", 3)),
    "complete": (lambda llm: value(llm.complete("hi")), told("Completion")),
    "acomplete": (lambda llm: llm.acomplete("hi"), told("Completion")),
    "stream_complete": (lambda llm: drained(llm.stream_complete("hi")), told("Completion", 3)),
    "astream_complete": (lambda llm: drained(llm.astream_complete("hi")), told("Completion", 3)),
    "chat_with_tools": (
        lambda llm: value(llm.chat_with_tools([ADD], "hi", tool_choice="add")),
        told("Chat"),
    ),
    "predict": (
        lambda llm: value(llm.predict(SAY, text="x")),
        ["LLMPredictStartEvent", *told("Chat"), "LLMPredictEndEvent"],
    ),
    "apredict": (
        lambda llm: llm.apredict(SAY, text="x"),
        ["LLMPredictStartEvent", *told("Chat"), "LLMPredictEndEvent"],
    ),
    # As in LlamaIndex: the end of a streamed prediction is the end of its chat.
    "stream": (
        lambda llm: drained(llm.stream(SAY, text="x")),
        ["LLMPredictStartEvent", *told("Chat", 3)],
    ),
    "astream": (
        lambda llm: drained(llm.astream(SAY, text="x")),
        ["LLMPredictStartEvent", *told("Chat", 3)],
    ),
}

# The object comes with the last chunk.
OBJECT = [*["LLMChatInProgressEvent"] * 2, "LLMStructuredPredictInProgressEvent"]
STRUCTURED: dict[str, Form] = {
    "structured_predict": lambda llm: value(llm.structured_predict(City, SAY, text="x")),
    "astructured_predict": lambda llm: llm.astructured_predict(City, SAY, text="x"),
    "stream_structured_predict": lambda llm: drained(
        llm.stream_structured_predict(City, SAY, text="x")
    ),
    "astream_structured_predict": lambda llm: drained(
        llm.astream_structured_predict(City, SAY, text="x")
    ),
}


@pytest.mark.parametrize("name", FORMS)
async def test_a_call_is_told_once(heard: Heard, name: str) -> None:
    form, expected = FORMS[name]
    await form(CacheFriendlyLLM(engine=ScriptedEngine(REPLY)))
    assert heard.names == expected
    assert len(heard.dumps) == len(expected)


@pytest.mark.parametrize("name", STRUCTURED)
async def test_a_structured_call_is_told_once(heard: Heard, name: str) -> None:
    await STRUCTURED[name](CacheFriendlyLLM(engine=ScriptedEngine(CALL)))
    chunks = OBJECT if "stream" in name else []
    assert heard.names == [
        "LLMStructuredPredictStartEvent",
        "LLMChatStartEvent",
        *chunks,
        "LLMChatEndEvent",
        "LLMStructuredPredictEndEvent",
    ]
    assert len(heard.dumps) == len(heard.names)


async def test_the_events_say_what_was_asked_and_answered(heard: Heard) -> None:
    llm = CacheFriendlyLLM(engine=ScriptedEngine(CALL))
    await drained(llm.astream_chat_with_tools([ADD], "hi", session_id="s", temperature=0))
    start, end = json.loads(heard.dumps[0]), json.loads(heard.dumps[-1])
    assert start["model_dict"]["model_name"] == "scripted"
    assert start["messages"][0]["blocks"][0]["text"] == "hi"
    assert start["additional_kwargs"]["tools"][0]["function"]["name"] == "add"
    assert start["additional_kwargs"]["session_id"] == "s"
    assert end["response"]["raw"]["usage"]["prompt_tokens"] == SCRIPTED_REPORT.prompt_tokens
    assert end["response"]["message"]["additional_kwargs"] == {"cachefriendly": "cf1:0:2"}
    assert start["span_id"] == end["span_id"]


class Failing(ScriptedEngine):
    """Each call ends with an error after its first event."""

    def chat(self, request: Any, *, timeout: float | None = None) -> Any:
        call = super().chat(request, timeout=timeout)
        call.cancel()
        return call


@pytest.mark.parametrize("name", [n for n in FORMS if "stream_" in n])
async def test_a_stream_that_fails_is_told_as_failed(heard: Heard, name: str) -> None:
    debug = LlamaDebugHandler(print_trace_on_end=False)
    manager = CallbackManager([debug])
    with pytest.raises(Cancelled):
        await FORMS[name][0](CacheFriendlyLLM(engine=Failing(REPLY), callback_manager=manager))
    assert heard.names[1:] == ["ExceptionEvent"]
    ((start, end),) = debug.get_llm_inputs_outputs()
    assert isinstance(end.payload["exception"], Cancelled)
    assert start.id_ == end.id_


@pytest.mark.parametrize("name", [n for n in FORMS if "chat" in n or "complete" in n])
async def test_a_call_that_is_refused_ends_for_its_handlers(name: str) -> None:
    debug = LlamaDebugHandler(print_trace_on_end=False)
    llm = CacheFriendlyLLM(
        engine=ScriptedEngine(REPLY), callback_manager=CallbackManager([debug]), session_id="s"
    )
    llm.generate_kwargs = {"temperature": float("nan")}
    with pytest.raises(RequestError, match="temperature=nan"):
        await FORMS[name][0](llm)
    ((_, end),) = debug.get_llm_inputs_outputs()
    assert isinstance(end.payload["exception"], RequestError)


@pytest.mark.parametrize("name", FORMS)
async def test_the_token_counter_counts_what_the_engine_counted(name: str) -> None:
    counter = TokenCountingHandler(tokenizer=lambda text: pytest.fail(f"counted {text!r}"))
    manager = CallbackManager([counter])
    await FORMS[name][0](CacheFriendlyLLM(engine=ScriptedEngine(REPLY), callback_manager=manager))
    assert counter.prompt_llm_token_count == SCRIPTED_REPORT.prompt_tokens
    assert counter.completion_llm_token_count == SCRIPTED_REPORT.generated_tokens
    assert len(counter.llm_token_counts) == 1

"""CASES.md 24: a reply is left before its end; the next call is exact, and warm.

Whatever left it: a closed stream, a cancelled task, an error of the reader or of a callback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.callbacks import CallbackManager, CBEventType
from llama_index.core.callbacks.base_handler import BaseCallbackHandler
from llama_index.core.program.function_program import get_function_tool
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from pydantic import BaseModel

from cachefriendly import Engine
from cachefriendly_li import CacheFriendlyLLM
from tests.li.agents import add
from tests.li.watch import Watch

Open: TypeAlias = Callable[[CacheFriendlyLLM], Any]

ASKED = "Tell me a long story about the sea, and one about the sun."
CHAT = [ChatMessage(ASKED)]


class City(BaseModel):
    """A city."""

    name: str


ADD = FunctionTool.from_defaults(add)
STREAMS: dict[str, Open] = {
    "stream_chat": lambda llm: llm.stream_chat(CHAT),
    "stream_complete": lambda llm: llm.stream_complete(ASKED),
    "stream_chat_with_tools": lambda llm: llm.stream_chat_with_tools([ADD], ASKED),
    "stream": lambda llm: llm.stream(PromptTemplate("{asked}"), asked=ASKED),
    "astream_chat": lambda llm: llm.astream_chat(CHAT),
    "astream_complete": lambda llm: llm.astream_complete(ASKED),
    "astream_chat_with_tools": lambda llm: llm.astream_chat_with_tools([ADD], ASKED),
    "astream": lambda llm: llm.astream(PromptTemplate("{asked}"), asked=ASKED),
}
TASKS: dict[str, Callable[[CacheFriendlyLLM], Awaitable[Any]]] = {
    "achat": lambda llm: llm.achat(CHAT),
    "acomplete": lambda llm: llm.acomplete(ASKED),
    "achat_with_tools": lambda llm: llm.achat_with_tools([ADD], ASKED),
    "apredict": lambda llm: llm.apredict(PromptTemplate("{asked}"), asked=ASKED),
    "astructured_predict": lambda llm: llm.astructured_predict(City, PromptTemplate(ASKED)),
    "astream_chat": lambda llm: _read(llm.astream_chat(CHAT)),
    "astream_structured_predict": lambda llm: _read(
        llm.astream_structured_predict(City, PromptTemplate(ASKED))
    ),
}


@pytest.fixture
def llm(tiny_engine: Engine, request: pytest.FixtureRequest) -> CacheFriendlyLLM:
    """Greedy letters without an end: what a model of random weights says if it may."""
    return CacheFriendlyLLM(
        engine=tiny_engine,
        max_new_tokens=50,
        generate_kwargs={"do_sample": False, "suppress_tokens": [*range(33), *range(127, 320)]},
        cache_namespace=request.node.nodeid,
    )


async def _read(stream: Any) -> list[Any]:
    return [chunk async for chunk in await stream]


async def first_chunk(stream: Any) -> tuple[Any, Any]:
    """The opened stream and its first chunk."""
    if hasattr(stream, "__await__"):
        stream = await stream
    return stream, await anext(stream) if hasattr(stream, "__anext__") else next(stream)


async def whole(call: Callable[[], Any]) -> None:
    """Make a call of any form and read it to its end."""
    result = call()
    if hasattr(result, "__await__"):
        result = await result
    if hasattr(result, "__anext__"):
        [chunk async for chunk in result]
    else:
        list(result)


async def close(stream: Any) -> None:
    if hasattr(stream, "aclose"):
        await stream.aclose()
    else:
        stream.close()


def options(name: str) -> dict[str, Any]:
    """What a call's prompt was made with."""
    if "structured" in name:
        return {"tools": [get_function_tool(City)]}
    return {"tools": [ADD]} if "tools" in name else {}


def check_next_call(llm: CacheFriendlyLLM, watch: Watch, **options: Any) -> None:
    """It says what a cold run says, and forwards nothing of the prompt but its last token."""
    assert watch.reports == []  # the call that was left never finished
    reply = llm.chat(CHAT, max_tokens=12, **options)
    cold = llm.chat(CHAT, max_tokens=12, cache_namespace="cold", **options)
    assert reply.message.content == cold.message.content
    assert watch.reports[0].prefilled_tokens == 1


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_closed_early(llm: CacheFriendlyLLM, tiny_watch: Watch, name: str) -> None:
    stream, _ = await first_chunk(STREAMS[name](llm))
    await close(stream)
    check_next_call(llm, tiny_watch, **options(name))


@pytest.mark.parametrize("name", ["stream_chat", "astream_chat"])
async def test_what_was_shown_goes_on_in_the_history(
    llm: CacheFriendlyLLM, tiny_watch: Watch, name: str
) -> None:
    stream, chunk = await first_chunk(STREAMS[name](llm))
    await close(stream)
    shown = chunk.message
    llm.chat([*CHAT, ChatMessage(shown.content, role="assistant"), ChatMessage("Go on.")])
    (report,) = tiny_watch.reports
    asked = llm.engine.prompt_ids(llm._request(CHAT, {}))
    assert report.reused_tokens >= len(asked) + len(shown.content) - 1
    assert report.losses == ()


@pytest.mark.parametrize("name", TASKS)
async def test_a_cancelled_task(llm: CacheFriendlyLLM, tiny_watch: Watch, name: str) -> None:
    task = asyncio.create_task(TASKS[name](llm))  # type: ignore[arg-type]
    while not tiny_watch.seen.forwards and not task.done():
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    check_next_call(llm, tiny_watch, **options(name))


@pytest.mark.parametrize("name", [name for name in STREAMS if name.startswith("stream")])
def test_an_error_of_the_reader_that_somebody_keeps(
    llm: CacheFriendlyLLM, tiny_watch: Watch, name: str
) -> None:
    """A kept traceback keeps the frames of the stream alive."""

    def read() -> None:
        for _ in STREAMS[name](llm):
            raise RuntimeError("the reader failed")

    with pytest.raises(RuntimeError, match="the reader failed") as kept:
        read()
    check_next_call(llm, tiny_watch, **options(name))
    assert kept.value.__traceback__ is not None


class Failing(BaseCallbackHandler):
    """Raises at the start, or at the end, of every call of an LLM."""

    def __init__(self, when: str) -> None:
        super().__init__([], [])
        self.when = when

    def start_trace(self, trace_id: str | None = None) -> None:
        """Nothing is traced."""

    def end_trace(self, trace_id: str | None = None, trace_map: Any = None) -> None:
        """Nothing is traced."""

    def on_event_start(self, event_type: CBEventType, *args: Any, **kwargs: Any) -> str:
        return self._fail("start", event_type)

    def on_event_end(self, event_type: CBEventType, *args: Any, **kwargs: Any) -> None:
        self._fail("end", event_type)

    def _fail(self, when: str, event_type: CBEventType) -> str:
        if (when, event_type) == (self.when, CBEventType.LLM):
            raise RuntimeError("the callback failed")
        return "id"


@pytest.mark.parametrize("when", ["start", "end"])
@pytest.mark.parametrize("name", [*STREAMS, "chat", "achat"])
async def test_an_error_in_a_callback(
    llm: CacheFriendlyLLM, tiny_engine: Engine, tiny_watch: Watch, name: str, when: str
) -> None:
    failing = Failing(when)
    heard = llm.model_copy(update={"callback_manager": CallbackManager([failing])})
    forms: dict[str, Any] = {"chat": lambda llm: llm.chat(CHAT), **TASKS, **STREAMS}
    with pytest.raises(RuntimeError, match="the callback failed"):
        await whole(lambda: forms[name](heard))
    assert tiny_engine.stats().core.running == 0
    reply = llm.chat(CHAT, max_tokens=12, **options(name))
    cold = llm.chat(CHAT, max_tokens=12, cache_namespace="cold", **options(name))
    assert reply.message.content == cold.message.content
    warm = tiny_watch.reports[-2].prefilled_tokens == 1
    assert warm == (when == "end")

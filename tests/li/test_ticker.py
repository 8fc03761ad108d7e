"""The event loop is never held up: not by torch, not by tokenizing, not by reading files."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from pydantic import BaseModel

from cachefriendly import EngineConfig
from cachefriendly.testing import scripted_replies, tiny_model
from cachefriendly_li import CacheFriendlyLLM, HuggingFaceLLM
from tests.li.watch import TOKENIZER, call_text, ids_of

Form: TypeAlias = Callable[[CacheFriendlyLLM, str], Awaitable[Any]]

LIMIT = 0.05


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "Rome"]


ADD = FunctionTool.from_defaults(add)


async def all_of(stream: Any) -> list[Any]:
    return [chunk async for chunk in await stream]


FORMS: dict[str, Form] = {
    "achat": lambda llm, text: llm.achat([ChatMessage(text)]),
    "astream_chat": lambda llm, text: all_of(llm.astream_chat([ChatMessage(text)])),
    "acomplete": lambda llm, text: llm.acomplete(text),
    "astream_complete": lambda llm, text: all_of(llm.astream_complete(text)),
}
MORE: dict[str, Form] = {
    "apredict": lambda llm, text: llm.apredict(PromptTemplate("{text}"), text=text),
    "astream": lambda llm, text: all_of(llm.astream(PromptTemplate("{text}"), text=text)),
    "apredict_and_call": lambda llm, text: llm.apredict_and_call([ADD], text, tool_required=True),
    "astructured_predict": lambda llm, text: llm.astructured_predict(
        City, PromptTemplate("{text}"), text=text
    ),
    "astream_structured_predict": lambda llm, text: all_of(
        llm.astream_structured_predict(City, PromptTemplate("{text}"), text=text)
    ),
    "as_structured_llm": lambda llm, text: llm.as_structured_llm(City).achat([ChatMessage(text)]),
    "aprefill": lambda llm, text: llm.aprefill([ChatMessage(text)], tools=[ADD]),
}
REPLIES = {
    "apredict_and_call": ids_of(call_text("add", '{"a": 1, "b": 2}')),
    **dict.fromkeys(
        ("astructured_predict", "astream_structured_predict", "as_structured_llm"),
        ids_of(call_text("City", '{"name": "Rome"}')),
    ),
}

# Work for other threads, by module. Ids that arrive are decoded where they arrive.
HEAVY = ("torch", "transformers", "tokenizers", "jinja2", "llguidance")
LIGHT = {"decode"}


@contextmanager
def heavy_calls() -> Iterator[set[str]]:
    """Names of what this thread calls that it should not, reading files included."""
    seen: set[str] = set()

    def watch(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            module, name = str(frame.f_globals.get("__name__")), frame.f_code.co_name
        elif event == "c_call":
            owner = getattr(argument, "__self__", None)
            module = argument.__module__ or type(owner).__module__ or ""
            name = argument.__name__
        else:
            return
        reads = name in ("open", "open_code", "read") and module in ("io", "_io", "posix")
        if reads or (module.startswith(HEAVY) and name not in LIGHT):
            seen.add(f"{module}.{name}")

    sys.setprofile(watch)
    try:
        yield seen
    finally:
        sys.setprofile(None)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("checkpoint")
    tiny_model("llama").save_pretrained(path)
    TOKENIZER.save_pretrained(path)
    return str(path)


@pytest.mark.parametrize("name", [*FORMS, *MORE])
async def test_the_loop_does_none_of_the_work_from_the_first_call_on(
    checkpoint: str, name: str
) -> None:
    unchecked = EngineConfig(check_model=False)
    llm = HuggingFaceLLM(checkpoint, max_new_tokens=60, engine_config=unchecked, device_map=None)
    form, reply = {**FORMS, **MORE}[name], REPLIES.get(name, ids_of("Fine."))
    with scripted_replies(reply, reply), heavy_calls() as seen:
        assert llm._source.opened is None
        await form(llm, "Hello")
        await form(llm, "Hello, once more")
    assert seen == set()
    llm.engine.close()


class Ticker:
    """Ticks every 10 ms; a gap is the time from one tick to the next.

    Where other processes have the machine, this one is made to wait without doing anything wrong.
    So of each gap only as much counts as this process computed in it: what keeps the loop waiting
    here is always work of its own.
    """

    def __init__(self) -> None:
        self.gaps: list[float] = []

    async def __aenter__(self) -> Ticker:
        self._task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._task.cancel()

    async def _tick(self) -> None:
        moment, worked = time.perf_counter(), time.process_time()
        while True:
            await asyncio.sleep(0.01)
            now, busy = time.perf_counter(), time.process_time()
            self.gaps.append(min(now - moment, busy - worked))
            moment, worked = now, busy

    def p99(self) -> float:
        return sorted(self.gaps)[int(len(self.gaps) * 0.99)]


@pytest.mark.parametrize("name", FORMS)
async def test_the_loop_ticks_while_the_model_generates(llm: CacheFriendlyLLM, name: str) -> None:
    # Opened before: reading a vocabulary of 49,000 words holds the GIL, in transformers too.
    await asyncio.to_thread(llm.engine.load)
    async with Ticker() as ticker:
        await FORMS[name](llm, f"By {name}, tell me a story. " * 8)
    assert len(ticker.gaps) > 20
    assert ticker.p99() <= LIMIT


async def test_the_loop_ticks_while_a_long_text_is_tokenized(tiny_llm: CacheFriendlyLLM) -> None:
    """Half a megabyte does not fit; that is known when its tokens are counted."""
    async with Ticker() as ticker:
        with pytest.raises(ValueError, match="context window"):
            await tiny_llm.achat([ChatMessage("A long text. " * 40_000)])
    assert len(ticker.gaps) > 3
    assert max(ticker.gaps) <= 2 * LIMIT

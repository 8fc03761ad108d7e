"""Turns that fail, are left early or cancelled: the memory holds whole turns only (case 24)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer as StockChatMemoryBuffer

from cachefriendly.errors import RequestError
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import (
    CacheFriendlyLLM,
    CondensePlusContextChatEngine,
    ContextChatEngine,
    SimpleChatEngine,
)
from tests.li.documents import FORMS, WordRetriever, ask

KINDS = ["simple", "context", "condense"]


class BrokenLLM(CacheFriendlyLLM):
    """Fails after ``whole`` calls; a stream fails behind its first chunk."""

    whole: int = 0

    def chat(self, messages: Any, **kwargs: Any) -> Any:
        self._count()
        return super().chat(messages, **kwargs)

    async def achat(self, messages: Any, **kwargs: Any) -> Any:
        self._count()
        return await super().achat(messages, **kwargs)

    def stream_chat(self, messages: Any, **kwargs: Any) -> Any:
        chunks = super().stream_chat(messages, **kwargs)

        def broken() -> Any:
            yield next(chunks)
            self._count()
            yield from chunks

        return broken()

    async def astream_chat(self, messages: Any, **kwargs: Any) -> Any:
        chunks = await super().astream_chat(messages, **kwargs)

        async def broken() -> Any:
            yield await anext(chunks)
            self._count()
            async for chunk in chunks:
                yield chunk

        return broken()

    def _count(self) -> None:
        if self.whole == 0:
            raise RequestError("boom")
        self.whole -= 1


def engine_of(kind: str, llm: Any, **options: Any) -> Any:
    if kind == "simple":
        return SimpleChatEngine.from_defaults(llm=llm, **options)
    if kind == "context":
        return ContextChatEngine.from_defaults(WordRetriever(), llm=llm, **options)
    return CondensePlusContextChatEngine.from_defaults(
        WordRetriever(), llm=llm, skip_condense=True, **options
    )


def contents(chat: Any) -> list[str]:
    return [message.content for message in chat.chat_history]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stock_memory", [False, True])
async def test_a_failing_llm_leaves_the_memory_as_it_was(
    kind: str, form: str, stock_memory: bool
) -> None:
    """Errors of ours are ValueErrors too; LlamaIndex would answer "Empty Response"."""
    llm = BrokenLLM(engine=ScriptedEngine("One.", "Two."))
    llm.whole = 1
    memory = {"memory": StockChatMemoryBuffer.from_defaults()} if stock_memory else {}
    chat = engine_of(kind, llm, **memory)
    await ask(chat, form, "The pool?")
    with pytest.raises(RequestError, match="boom"):
        await ask(chat, form, "The tram?")
    assert contents(chat) == ["The pool?", "One."]
    llm.whole = 1
    await ask(chat, form, "The tram?")
    assert contents(chat)[2] == "The tram?"
    assert len(contents(chat)) == 4


@pytest.mark.parametrize("kind", ["context", "condense"])
@pytest.mark.parametrize("form", FORMS)
async def test_a_failing_retriever_leaves_the_memory_as_it_was(kind: str, form: str) -> None:
    chat = engine_of(kind, CacheFriendlyLLM(engine=ScriptedEngine("One.")))
    await ask(chat, form, "The pool?")
    with pytest.raises(LookupError, match="the index is gone"):
        await ask(chat, form, "explode")
    assert contents(chat) == ["The pool?", "One."]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_reader_who_leaves_early_loses_nothing(kind: str) -> None:
    """As in LlamaIndex: the reply is read to its end and kept."""
    engine = ScriptedEngine("One two three.")
    chat = engine_of(kind, CacheFriendlyLLM(engine=engine))
    reader = chat.stream_chat("The pool?").response_gen
    assert next(reader) == "One "
    reader.close()
    assert contents(chat) == ["The pool?", "One two three."]
    areader = (await chat.astream_chat("The tram?")).async_response_gen()
    assert await anext(areader) == "One "
    await areader.aclose()
    assert contents(chat)[2:] == ["The tram?", "One two three."]
    assert engine.calls[-1].finished


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["achat", "astream"])
async def test_a_cancelled_turn_leaves_no_trace(kind: str, form: str) -> None:
    engine = ScriptedEngine("One two three.", stall_at=2)
    chat = engine_of(kind, CacheFriendlyLLM(engine=engine))
    if form == "achat":
        task = asyncio.create_task(chat.achat("The pool?"))
        while not engine.calls:
            await asyncio.sleep(0.01)
    else:
        response = await chat.astream_chat("The pool?")
        task = response.awrite_response_to_history_task
        assert await anext(response.async_response_gen()) == "One "
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.calls[0].cancelled
    assert chat.chat_history == []
    engine.stall_at = None
    await chat.achat("The pool?")
    assert contents(chat) == ["The pool?", "One two three."]


async def test_the_question_is_in_the_history_while_the_reply_streams() -> None:
    engine = ScriptedEngine("One two three.")
    chat = engine_of("context", CacheFriendlyLLM(engine=engine))
    response = await chat.astream_chat("The pool?")
    assert contents(chat) == ["The pool?"]
    assert [delta async for delta in response.async_response_gen()] == ["One ", "two ", "three."]


def test_what_another_thread_put_meanwhile_stays() -> None:
    """Only the turn's own message is taken out again."""
    llm = BrokenLLM(engine=ScriptedEngine("One."))
    chat = engine_of("simple", llm)
    waiting, going = threading.Event(), threading.Event()

    def count() -> None:
        waiting.set()
        going.wait(5)
        raise RequestError("boom")

    object.__setattr__(llm, "_count", count)
    reader = chat.stream_chat("The pool?").response_gen
    waiting.wait(5)
    chat._memory.put(ChatMessage("From elsewhere.", role="assistant"))
    going.set()
    with pytest.raises(RequestError):
        list(reader)
    assert contents(chat) == ["The pool?", "From elsewhere."]

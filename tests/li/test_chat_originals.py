"""What LlamaIndex's own tests ask of its chat engines, asked of ours where nothing else asks it."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage

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


class Breaks(CacheFriendlyLLM):
    """Its streams fail behind their first chunk."""

    async def astream_chat(self, messages: Any, **kwargs: Any) -> Any:
        chunks = await super().astream_chat(messages, **kwargs)

        async def broken() -> Any:
            yield await anext(chunks)
            raise RequestError("boom")

        return broken()


def engine_of(kind: str, llm: CacheFriendlyLLM, **options: Any) -> Any:
    if kind == "simple":
        return SimpleChatEngine.from_defaults(llm=llm, **options)
    made = ContextChatEngine if kind == "context" else CondensePlusContextChatEngine
    return made.from_defaults(WordRetriever({"": "Note."}), llm=llm, **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
async def test_an_empty_history_begins_anew(kind: str, form: str) -> None:
    """An empty list is a history, and None is not."""
    engine = ScriptedEngine("Yes.")
    old = [ChatMessage("Before?"), ChatMessage("Long ago.", role="assistant")]
    chat = engine_of(kind, CacheFriendlyLLM(engine=engine), chat_history=old)
    await ask(chat, form, "Now?", chat_history=[])
    (request,) = engine.requests  # nothing to condense with, either
    assert "Long ago." not in str(request.messages)
    assert [message.content for message in chat.chat_history] == ["Now?", "Yes."]
    await ask(chat, form, "And then?", chat_history=None)
    assert len(chat.chat_history) == 4


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_that_nobody_reads_has_its_text_when_it_is_done(kind: str) -> None:
    chat = engine_of(kind, CacheFriendlyLLM(engine=ScriptedEngine("Yes. No.")))
    response = await chat.astream_chat("Well?")
    await response.awrite_response_to_history_task
    threaded = chat.stream_chat("Well?")
    threaded.write_response_to_history_thread.join()
    for done in (response, threaded):
        assert (done.response, str(done), done.is_done) == ("Yes. No.", "Yes. No.", True)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_that_was_read_is_not_reported_once_more(kind: str) -> None:
    """Python tells of a task whose exception nobody retrieved when the task is collected."""

    async def talk() -> None:
        response = await engine_of(kind, Breaks(engine=ScriptedEngine("Yes."))).astream_chat("Hi")
        with pytest.raises(RequestError, match="boom"):
            async for _ in response.async_response_gen():
                pass

    reported: list[Any] = []
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
    try:
        loop.run_until_complete(talk())
    finally:
        loop.close()
    gc.collect()
    assert reported == []

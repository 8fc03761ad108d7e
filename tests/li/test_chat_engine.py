"""The chat engine against a scripted engine: what enters memory, and what a reader gets."""

from __future__ import annotations

import time
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, ThinkingBlock
from llama_index.core.chat_engine import SimpleChatEngine as StockSimpleChatEngine
from llama_index.core.memory import ChatMemoryBuffer as StockChatMemoryBuffer

from cachefriendly.errors import RequestError
from cachefriendly.messages import Message
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import (
    CacheFriendlyChatEngine,
    CacheFriendlyLLM,
    ChatMemoryBuffer,
    SimpleChatEngine,
)

REPLY = Message("assistant", " An answer.\n", reasoning="hm", handle="cf1:0:1")


def engine_on(engine: Any, **options: Any) -> SimpleChatEngine:
    return SimpleChatEngine.from_defaults(llm=CacheFriendlyLLM(engine=engine), **options)


def test_names_and_arguments_are_those_of_the_stock_class() -> None:
    assert CacheFriendlyChatEngine is SimpleChatEngine
    assert issubclass(SimpleChatEngine, StockSimpleChatEngine)
    with pytest.raises(ValueError, match="Cannot specify both"):
        engine_on(ScriptedEngine(REPLY), system_prompt="a", prefix_messages=[])
    stock = engine_on(ScriptedEngine(REPLY), memory_cls=StockChatMemoryBuffer)._memory
    assert type(stock) is StockChatMemoryBuffer
    memory = ChatMemoryBuffer.from_defaults(token_limit=10, tokenizer_fn=str.split)
    assert engine_on(ScriptedEngine(REPLY), memory=memory)._memory is memory


async def test_every_way_of_chatting_stores_the_reply_as_generated() -> None:
    engine = ScriptedEngine(REPLY)
    chat = engine_on(engine, system_prompt="Be brief.")
    assert chat.chat("1").response == " An answer.\n"
    assert (await chat.achat("2")).response == " An answer.\n"
    assert list(chat.stream_chat("3").response_gen) == [" An ", "answer.\n"]
    stream = await chat.astream_chat("4")
    assert [delta async for delta in stream.async_response_gen()] == [" An ", "answer.\n"]
    assert str(stream) == "An answer."
    replies = [m for m in chat.chat_history if m.role == "assistant"]
    assert [m.content for m in replies] == [" An answer.\n"] * 4
    assert {m.additional_kwargs["cachefriendly"] for m in replies} == {"cf1:0:1"}
    assert all(isinstance(m.blocks[0], ThinkingBlock) for m in replies)


def test_the_history_is_append_only() -> None:
    engine = ScriptedEngine(REPLY)
    chat = engine_on(engine, system_prompt="Be brief.")
    for number in range(3):
        list(chat.stream_chat(str(number)).response_gen)
    first, second, third = (request.messages for request in engine.requests)
    assert first == (Message("system", "Be brief."), Message("user", "0"))
    assert second[:2] == first
    assert third[: len(second)] == second
    assert second[2] == REPLY


def test_reset_and_a_history_of_ones_own() -> None:
    engine = ScriptedEngine(REPLY)
    chat = engine_on(engine, chat_history=[ChatMessage("old"), ChatMessage("a", role="assistant")])
    assert len(chat.chat_history) == 2
    chat.reset()
    assert chat.chat_history == []
    chat.chat("hi", chat_history=[ChatMessage("new"), ChatMessage("b", role="assistant")])
    assert [m.content for m in engine.requests[0].messages] == ["new", "b", "hi"]


def test_a_history_that_another_engine_showed_is_sent_as_it_was() -> None:
    shown = ChatMessage("The pool?", additional_kwargs={"cachefriendly_sent": "Nodes. The pool?"})
    engine = ScriptedEngine(REPLY)
    chat = engine_on(engine, chat_history=[shown, ChatMessage("Roof.", role="assistant")])
    chat.chat("hi")
    assert [m.content for m in engine.requests[0].messages] == ["Nodes. The pool?", "Roof.", "hi"]
    assert chat.chat_history[0].content == "The pool?"


def test_the_history_leaves_room_for_the_reply() -> None:
    chat = engine_on(ScriptedEngine(REPLY))
    assert chat._memory.token_limit == 2048 * 3 // 4


def test_a_stream_that_fails_tells_its_reader() -> None:
    engine = ScriptedEngine(REPLY)
    chat = engine_on(engine)

    def broken(messages: Any, **kwargs: Any) -> Any:
        yield from list(CacheFriendlyLLM(engine=engine).stream_chat(messages))[:1]
        raise RequestError("boom")

    object.__setattr__(chat._llm, "stream_chat", broken)
    reader = chat.stream_chat("hi").response_gen
    with pytest.raises(RequestError, match="boom"):
        list(reader)
    assert chat.chat_history == []


def test_waiting_for_a_token_takes_no_cpu() -> None:
    engine = ScriptedEngine(REPLY)
    chat = engine_on(engine)

    def slow(messages: Any, **kwargs: Any) -> Any:
        chunks = list(CacheFriendlyLLM(engine=engine).stream_chat(messages))
        time.sleep(0.5)
        yield from chunks

    object.__setattr__(chat._llm, "stream_chat", slow)
    response = chat.stream_chat("hi")
    before = time.thread_time()
    list(response.response_gen)
    assert time.thread_time() - before < 0.1

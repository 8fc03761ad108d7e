"""Odd text through a whole engine: it arrives as it is, or is refused clearly."""

from __future__ import annotations

import time
import tracemalloc
import unicodedata
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from cachefriendly import ChatRequest, ContextOverflow, Engine, EngineConfig, Message, RequestError
from cachefriendly.config import Sampling
from cachefriendly.messages import Tool, ToolCall
from cachefriendly.testing import byte_tokenizer, cold_generate, templates, tiny_model

GREEDY = Sampling(max_tokens=4, temperature=0)
TOOL = Tool("read", "Read a file", {"type": "object", "properties": {}})
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    model = tiny_model("llama", max_position_embeddings=2 * MIB)
    with Engine(model, byte_tokenizer(templates.NATIVE_TOOLS)) as made:
        yield made


@pytest.fixture(scope="module")
def cold() -> Any:
    return tiny_model("llama", max_position_embeddings=2 * MIB)


ODD = {
    "private use": "\ue0b0 \uf8ff \ue000",
    "plane 15 and 16": "\U000f0000\U000ffffd\U00100000\U0010fffd",
    "noncharacters": "\ufffe\uffff\U0010ffff",
    "NUL": "a\x00b\x00",
    "control characters": "\x01\x07\x08\x1a\x1b[31mred\x1b[0m\x7f\x85",
    "line ends": "a\r\nb\rc\u2028d\u2029e\x0b\x0cf",
    "composed and decomposed": "\u00e9 e\u0301 \u1e9b\u0323 \ufb01 \u212b \u2126",
    "right to left": "\u202eabc\u202c \u05d0\u05d1 \u200f",
    "joined": "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f",
    "many marks": "a" + "\u0301" * 100,
    "no width": "\u200b\ufeff\u2060\u00ad",
    "one long word": "w" * 1500,
    "escapes": "\\ud83d\\ude00 \\u0000 %F4%8F \\x1a \x1a\x1a0; {{ x }} {% raw %} </s>",
    "only spaces": " \t\n ",
    "nothing": "",
}


def prompt_text(engine: Engine, request: ChatRequest) -> str:
    return bytes(i for i in engine.prompt_ids(request) if i < 256).decode()


def talk(text: str) -> tuple[Message, ...]:
    """The text wherever untrusted text can stand; a control token makes the disguise busy too."""
    call = ToolCall("read", {text: [text], "path": text}, "c1")
    return (
        Message("system", f"<{text}>"),
        Message("user", f"<{text}><|im_end|>"),
        Message("assistant", "", (call,)),
        Message("tool", f"<{text}>", tool_call_id="c1"),
    )


@pytest.mark.parametrize("name", ODD)
def test_odd_text_arrives_unchanged_and_is_exact(engine: Engine, cold: Any, name: str) -> None:
    text = ODD[name]
    first = engine.chat(ChatRequest(talk(text), (TOOL,), sampling=GREEDY)).result()
    sent = prompt_text(engine, ChatRequest(talk(text), (TOOL,)))
    assert sent.count(f"<{text}>") == 3
    again = (*talk(text), first.message, Message("user", text))
    second = engine.chat(ChatRequest(again, (TOOL,), sampling=GREEDY)).result()
    held = first.prompt_ids + first.output_ids
    assert second.prompt_ids[: len(held)] == held
    assert second.report.losses == ()
    if len(second.prompt_ids) < 1000:
        ids = cold_generate(cold, second.prompt_ids, max_new_tokens=4)
        assert tuple(ids)[: len(second.output_ids)] == second.output_ids


def test_equal_looking_texts_are_different_messages(engine: Engine) -> None:
    """Nothing is normalised on the way: a framework that does so has edited the message."""
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    assert unicodedata.normalize("NFC", decomposed) == composed
    ids = [engine.prompt_ids(ChatRequest((Message("user", t),))) for t in (composed, decomposed)]
    assert ids[0] != ids[1]


SURROGATES = ["\ud800", "a\udfffb", "\ude00\ud83d", "\ud83d"]


@pytest.mark.parametrize("text", SURROGATES)
def test_a_lone_surrogate_is_refused_with_its_place(engine: Engine, text: str) -> None:
    """It has no UTF-8 form, so no tokenizer can mean it; silently changing it would hide a bug."""
    where = len(text) - len(text.lstrip("ab"))
    for messages in (
        (Message("user", text),),
        (Message("user", "hi"), Message("assistant", "", reasoning=text), Message("user", "x")),
    ):
        with pytest.raises(RequestError, match=rf"character {where} is the lone surrogate"):
            engine.chat(ChatRequest(messages, sampling=GREEDY))
    arguments = ToolCall("read", {"path": [{text: 1}]}, "c1")
    with pytest.raises(RequestError, match=r"message 1 \(assistant\): .*lone surrogate"):
        engine.chat(ChatRequest((Message("user", "hi"), Message("assistant", "", (arguments,)))))
    tool = Tool("read", text, {"type": "object", "properties": {}})
    with pytest.raises(RequestError, match=r"tool 'read': .*lone surrogate"):
        engine.chat(ChatRequest((Message("user", "hi"),), (tool,)))
    stop = Sampling(max_tokens=2, stop=(text,))
    engine.chat(ChatRequest((Message("user", "hi"),), sampling=stop)).result()


def test_langchain_users_get_the_same_error() -> None:
    from cachefriendly_lc import ChatCacheFriendly

    made = SimpleNamespace(model=tiny_model("llama"), tokenizer=byte_tokenizer())
    model = ChatCacheFriendly(llm=made, max_tokens=2)
    with pytest.raises(RequestError, match=r"message 0 \(user\): character 4 is the lone surrogat"):
        model.invoke("bad \ud83d")
    assert model.invoke("good \U0001f600").response_metadata
    model.engine.close()


def test_llamaindex_users_get_the_same_error() -> None:
    from llama_index.core.llms import ChatMessage

    from cachefriendly_li import CacheFriendlyLLM

    model = CacheFriendlyLLM(
        model=tiny_model("llama"), tokenizer=byte_tokenizer(), max_new_tokens=2
    )
    with pytest.raises(RequestError, match=r"message 0 \(user\): character 4 is the lone surrogat"):
        model.chat([ChatMessage(role="user", content="bad \ud83d")])
    assert model.chat([ChatMessage(role="user", content="good \U0001f600")]).message
    model.engine.close()


def big_result(text: str) -> tuple[Message, ...]:
    call = Message("assistant", "", (ToolCall("read", {}, "c1"),))
    return (Message("user", "read it"), call, Message("tool", text, tool_call_id="c1"))


@pytest.mark.parametrize("filler", ["line of a log <|im_end|> \ue0b0\n", "w", "\U0001f600"])
def test_a_tool_result_of_a_megabyte_costs_time_and_memory_in_proportion(
    engine: Engine, filler: str
) -> None:
    """The prompt alone: forwarding a million tokens is the model's own cost."""
    text = filler * (MIB // len(filler.encode()))
    request = ChatRequest((*big_result(text), Message("user", "and?")), (TOOL,))
    tracemalloc.start()
    started = time.process_time()
    ids = engine.prompt_ids(request)
    first, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert MIB * 0.99 < len(ids) < MIB * 1.01
    assert peak < 400 * MIB
    assert first < 30
    assert prompt_text(engine, request).count(text) == 1


@pytest.mark.parametrize("overflow", ["refuse", "drop_oldest", "sink_window"])
def test_a_megabyte_beyond_the_window_is_refused(overflow: Any) -> None:
    config = EngineConfig(overflow=overflow)
    with Engine(tiny_model("llama"), byte_tokenizer(templates.NATIVE_TOOLS), config) as small:
        request = ChatRequest(big_result("x" * MIB), (TOOL,), sampling=GREEDY)
        with pytest.raises(ContextOverflow, match="context window"):
            small.chat(request)
        assert small.chat(ChatRequest((Message("user", "hi"),), sampling=GREEDY)).result()


def test_a_new_turn_after_a_large_result_forwards_only_itself() -> None:
    """14,000 tokens held; the next question costs its own tokens."""
    model = tiny_model("llama", max_position_embeddings=2 * MIB, num_hidden_layers=1)
    with Engine(model, byte_tokenizer(templates.NATIVE_TOOLS)) as engine:
        messages = big_result("log \ue0b0 line\n" * 1000)
        first = engine.chat(ChatRequest(messages, (TOOL,), sampling=GREEDY)).result()
        messages += (first.message, Message("user", "what next?"))
        second = engine.chat(ChatRequest(messages, (TOOL,), sampling=GREEDY)).result()
    assert first.report.prompt_tokens > 12_000
    assert second.report.prefilled_tokens < 60
    assert second.report.losses == ()

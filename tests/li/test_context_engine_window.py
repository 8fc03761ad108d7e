"""Conversations over documents that outgrow the window: nodes go before questions and answers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from llama_index.core.chat_engine import ContextChatEngine as StockContextChatEngine
from llama_index.core.memory import ChatMemoryBuffer as StockChatMemoryBuffer

from cachefriendly.messages import Message
from cachefriendly.prefix import common_prefix
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import (
    CacheFriendlyLLM,
    ChatMemoryBuffer,
    CondensePlusContextChatEngine,
    ContextChatEngine,
)
from tests.li.documents import WordRetriever

# The scripted engine counts bytes: 2,048 of them are the window, 1,536 what a memory may hold.
WINDOW, LIMIT = 2048, 1536
TURNS = 24


def engine_on(engine: Any, size: int = 300, **options: Any) -> Any:
    llm = CacheFriendlyLLM(engine=engine, max_new_tokens=50)
    retriever = WordRetriever({"": "n" * size})
    options = {"system_prompt": "Be brief.", "context_template": "{context_str}", **options}
    return ContextChatEngine.from_defaults(retriever, llm=llm, **options)


def length(messages: tuple[Message, ...]) -> int:
    return sum(len(message.content) for message in messages)


def asked(messages: tuple[Message, ...]) -> list[str]:
    """The questions, without what may stand before them."""
    return [m.content.split("\n")[-1] for m in messages if m.role == "user"]


@pytest.mark.parametrize("size", [150, 300, 800])
def test_old_turns_keep_their_question_when_there_is_no_room_for_nodes(size: int) -> None:
    """800 bytes of nodes are more than half of what memory may hold: each turn is one's last."""
    engine = ScriptedEngine("Yes.")
    chat = engine_on(engine, size)
    for number in range(TURNS):
        chat.chat(f"Question {number}?")
    for number, request in enumerate(engine.requests):
        assert length(request.messages) <= LIMIT
        assert request.messages[-1].content == f"{'n' * size}\n\nQuestion {number}?"
        assert asked(request.messages) == [f"Question {n}?" for n in range(number + 1)]
    assert [m.content for m in chat.chat_history[::2]] == asked(engine.requests[-1].messages)


@pytest.mark.parametrize("size", [150, 300, 800])
def test_no_two_turns_in_a_row_send_much_of_the_window_anew(size: int) -> None:
    """Case 13: making room cuts what follows the first turn that is cut, seldom more."""
    engine = ScriptedEngine("Yes.")
    chat = engine_on(engine, size)
    for number in range(60):
        chat.chat(f"Question {number}?")
    sent = [request.messages for request in engine.requests]
    anew = [
        length(after[common_prefix(before, after) :]) - length(after[-1:])
        for before, after in pairwise(sent)
    ]
    assert sum(anew) < 60 * 60
    assert all(min(pair) < LIMIT // 4 for pair in pairwise(anew))
    if size < 800:  # where two turns fit, most turns cut nothing
        assert sum(cut > 4 for cut in anew) < 30


def test_whole_turns_go_where_questions_alone_are_too_many() -> None:
    engine = ScriptedEngine("Yes, " * 30)
    chat = engine_on(engine, 200)
    for number in range(TURNS):
        chat.chat(f"Question {number}?")
    last = engine.requests[-1].messages
    assert length(last) <= LIMIT
    assert last[0].content == "Be brief."
    assert last[1].role == "user"
    assert len(chat.chat_history) == 2 * TURNS


def test_a_memory_stored_half_way_goes_on_with_the_same_window() -> None:
    engine = ScriptedEngine("Yes.")
    chat = engine_on(engine)
    for number in range(9):
        chat.chat(f"Question {number}?")
    stored = chat._memory.to_string()
    chat.chat("And now?")
    memory = ChatMemoryBuffer.from_string(stored)
    memory.use_llm(chat._llm)
    engine_on(engine, memory=memory).chat("And now?")
    one, two = engine.requests[-2:]
    assert one.messages == two.messages
    assert any(len(message.content) < 300 for message in one.messages if message.role == "user")


@pytest.mark.parametrize("make", [ContextChatEngine, CondensePlusContextChatEngine])
@pytest.mark.parametrize(("size", "fits"), [(300, True), (600, True), (2600, False)])
def test_nodes_that_fit_are_one_call(make: Any, size: int, fits: bool) -> None:
    engine = ScriptedEngine("Yes.")
    llm = CacheFriendlyLLM(engine=engine, max_new_tokens=50)
    chat = make.from_defaults(WordRetriever({"": "word " * (size // 5)}), llm=llm)
    chat.chat("What?")
    assert (len(engine.requests) == 1) is fits
    assert all(length(request.messages) < WINDOW - 50 for request in engine.requests)


@pytest.mark.parametrize("limit", [40, 300, 900])
def test_a_small_memory_does_not_cut_nodes_into_crumbs(limit: int) -> None:
    """Memory never cuts the newest turn, so a part may be larger than what memory keeps to."""
    engine = ScriptedEngine("Yes.")
    memory = ChatMemoryBuffer.from_defaults(token_limit=limit)
    chat = engine_on(engine, 2600, memory=memory)
    chat.chat("What?")
    chat.chat("And now?")
    assert len(engine.requests) <= 2 * 2600 // (WINDOW // 8)
    assert all(length(request.messages) < WINDOW - 50 for request in engine.requests)


def test_a_memory_larger_than_the_window_leaves_nodes_what_the_history_leaves() -> None:
    """As in LlamaIndex, where such a memory never makes room."""
    engine = ScriptedEngine("Yes. " * 20)
    memory = StockChatMemoryBuffer.from_defaults(token_limit=100_000)
    chat = engine_on(engine, 600, memory=memory, context_refine_template="{context_msg}")
    for number in range(2):
        chat.chat(f"Question {number}?")
    assert [length(request.messages) // 700 for request in engine.requests] == [0, 1]
    chat.chat("Question 2?")
    assert len(engine.requests) > 3
    assert all(length(request.messages) < WINDOW - 50 for request in engine.requests)
    with pytest.raises(ValueError, match="size"):
        chat.chat("q" * 600)
    assert chat.chat_history[-1].role == "assistant"


def test_a_question_that_leaves_no_room_fails_as_in_llama_index() -> None:
    engine = ScriptedEngine("Yes.")
    long = "q" * 2500
    with pytest.raises(ValueError, match="available context size"):
        engine_on(engine).chat(long)
    llm = CacheFriendlyLLM(engine=engine, max_new_tokens=1000)
    stock = StockContextChatEngine.from_defaults(
        WordRetriever({"": "n"}),
        llm=llm,
        memory=StockChatMemoryBuffer.from_defaults(),
        context_template="t " * 5000 + "{context_str}",
    )
    with pytest.raises(ValueError, match="available context size"):
        stock.chat("What?")

"""`CondensePlusContextChatEngine` against a scripted engine: condensing, searching, answering."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine as StockCondensePlusContextChatEngine,
)
from llama_index.core.memory import ChatMemoryBuffer as StockChatMemoryBuffer

from cachefriendly.errors import ContextOverflow
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import CacheFriendlyLLM, CondensePlusContextChatEngine
from tests.li.documents import FORMS, WordRetriever, ask

ROOF, TRAM = "On the roof.", "When does the tram leave?"


def engine_on(engine: Any, **options: Any) -> Any:
    options.setdefault("system_prompt", "Be brief.")
    return CondensePlusContextChatEngine.from_defaults(
        WordRetriever(), llm=CacheFriendlyLLM(engine=engine), **options
    )


def test_arguments_are_those_of_the_stock_class_and_a_layout() -> None:
    ours_cls, stock_cls = CondensePlusContextChatEngine, StockCondensePlusContextChatEngine
    assert issubclass(ours_cls, stock_cls)
    for name in ("__init__", "from_defaults", "chat", "stream_chat", "achat", "astream_chat"):
        ours = inspect.signature(getattr(ours_cls, name)).parameters
        stock = inspect.signature(getattr(stock_cls, name)).parameters
        assert [n for n in ours if n != "layout"] == list(stock)
        assert all(ours[n].default == p.default for n, p in stock.items())


@pytest.mark.parametrize("form", FORMS)
async def test_the_instruction_stands_behind_the_conversation(form: str, capsys: Any) -> None:
    engine = ScriptedEngine(ROOF, TRAM, "Every ten minutes.")
    chat = engine_on(engine, verbose=True)
    await ask(chat, form, "Where is the pool?")
    response = await ask(chat, form, "And that?")
    first, branch, second = engine.requests
    assert len(first.messages) == 2
    assert branch.messages[:3] == second.messages[:3]
    asked = branch.messages[3].content
    assert "Chat History:\n  (the conversation above)\n  Follow Up Input: And that?" in asked
    assert (branch.session, second.session) == ("chat/condense", None)
    assert chat._retriever.asked == ["Where is the pool?", TRAM]
    assert response.sources[0].raw_input == {"message": TRAM}
    assert second.messages[-1].content.endswith("\n\nAnd that?")
    assert [m.content for m in chat.chat_history] == [
        "Where is the pool?",
        ROOF,
        "And that?",
        "Every ten minutes.",
    ]
    assert capsys.readouterr().out.splitlines()[-1] == f"Condensed question: {TRAM}"


@pytest.mark.parametrize("form", FORMS)
async def test_skip_condense_searches_with_the_message(form: str) -> None:
    engine = ScriptedEngine(ROOF)
    chat = engine_on(engine, skip_condense=True)
    await ask(chat, form, "Where is the pool?")
    await ask(chat, form, "And the tram?")
    assert len(engine.requests) == 2
    assert chat._retriever.asked == ["Where is the pool?", "And the tram?"]


@pytest.mark.parametrize("form", FORMS)
async def test_the_stock_layout_is_the_stock_engine(form: str) -> None:
    sent = []
    for make in (CondensePlusContextChatEngine, StockCondensePlusContextChatEngine):
        engine = ScriptedEngine(ROOF, TRAM, "Every ten minutes.")
        extra = {"layout": "stock"} if make is CondensePlusContextChatEngine else {}
        chat = make.from_defaults(
            WordRetriever(),
            llm=CacheFriendlyLLM(engine=engine),
            system_prompt="Be brief.",
            memory=StockChatMemoryBuffer.from_defaults(),
            **extra,
        )
        texts = [str(await ask(chat, form, q)) for q in ("Where is the pool?", "And that?")]
        history = [(m.role, m.content) for m in chat.chat_history]
        sent.append((engine.requests, texts, history))
    assert sent[0] == sent[1]
    assert "user: Where is the pool?\nassistant: On the roof." in sent[0][0][1].messages[0].content


@pytest.mark.parametrize("form", ["chat", "achat"])
async def test_a_branch_that_does_not_fit_is_a_copy_of_questions_and_answers(form: str) -> None:
    class Narrow(ScriptedEngine):
        def chat(self, request: Any, *, timeout: float | None = None) -> Any:
            if "(the conversation above)" in request.messages[-1].content:
                raise ContextOverflow("too long")
            return super().chat(request, timeout=timeout)

    engine = Narrow(ROOF, TRAM, "Every ten minutes.")
    chat = engine_on(engine)
    await ask(chat, form, "Where is the pool?")
    await ask(chat, form, "And that?")
    (copy,) = engine.requests[1].messages
    assert "user: Where is the pool?\nassistant: On the roof.\n  Follow Up" in copy.content
    assert chat._retriever.asked[1] == TRAM


async def test_prompts_of_ones_own() -> None:
    engine = ScriptedEngine(ROOF, "The pool?", ROOF)
    chat = engine_on(
        engine,
        context_prompt="Notes: {context_str}",
        condense_prompt="Rephrase: {question}",
        system_prompt=None,
    )
    await ask(chat, "chat", "The tram?")
    await ask(chat, "chat", "The pool?")
    first, branch, _ = engine.requests
    assert first.messages[0].content == ("Notes: The tram leaves every ten minutes.\n\nThe tram?")
    assert branch.messages[-1].content == "Rephrase: The pool?"

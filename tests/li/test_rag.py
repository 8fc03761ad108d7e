"""An index, its chat engines in every mode, and ten turns beside LlamaIndex's own engine."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core import Document, MockEmbedding, Settings, VectorStoreIndex
from llama_index.core.chat_engine import CondenseQuestionChatEngine
from llama_index.core.chat_engine import ContextChatEngine as StockContextChatEngine
from llama_index.core.chat_engine.types import ChatMode
from llama_index.core.llms.mock import MockLLM
from llama_index.core.memory import ChatMemoryBuffer as StockChatMemoryBuffer

import cachefriendly_li as ours
from cachefriendly import Engine, EngineConfig, Message
from cachefriendly.testing import ScriptedEngine, tiny_model
from cachefriendly_li import CacheFriendlyLLM, ContextChatEngine, as_chat_engine
from tests.li.documents import FORMS, WordRetriever, ask
from tests.li.watch import TOKENIZER

TEXTS = ["The pool is on the roof.", "Breakfast starts at 7 am.", "Dogs are welcome."]


def index_of(texts: list[str] = TEXTS) -> VectorStoreIndex:
    return VectorStoreIndex.from_documents(
        [Document(text=text) for text in texts], embed_model=MockEmbedding(embed_dim=3)
    )


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("simple", ours.SimpleChatEngine),
        ("context", ours.ContextChatEngine),
        ("condense_plus_context", ours.CondensePlusContextChatEngine),
        (ChatMode.BEST, ours.CondensePlusContextChatEngine),
    ],
)
async def test_every_mode_of_an_index(mode: Any, kind: type[Any]) -> None:
    engine = ScriptedEngine("Yes.")
    llm = CacheFriendlyLLM(engine=engine)
    chat = as_chat_engine(index_of(), mode, llm, system_prompt="Be brief.", similarity_top_k=1)
    assert type(chat) is kind
    for form in FORMS:
        response = await ask(chat, form, "Are dogs welcome?")
        assert str(response) == "Yes."
        assert len(response.source_nodes) == (mode != "simple")
    assert engine.requests[0].messages[0] == Message("system", "Be brief.")


def test_modes_without_an_engine_of_ours_are_llama_indexs(monkeypatch: Any) -> None:
    llm = CacheFriendlyLLM(engine=ScriptedEngine("Yes."))
    memory = StockChatMemoryBuffer.from_defaults()
    chat = as_chat_engine(index_of(), ChatMode.CONDENSE_QUESTION, llm, memory=memory)
    assert type(chat) is CondenseQuestionChatEngine
    assert chat.chat("Are dogs welcome?").response == "Yes."
    for mode in (ChatMode.REACT, "openai"):
        with pytest.raises(ValueError, match="deprecated and removed"):
            as_chat_engine(index_of(), mode, llm)
    with pytest.raises(ValueError, match="Unknown chat mode: dance"):
        as_chat_engine(index_of(), "dance", llm)
    monkeypatch.setattr(Settings, "_llm", llm)
    assert as_chat_engine(index_of(), "simple")._llm is llm
    layout = as_chat_engine(index_of(), "context", llm, layout="stock", memory=memory)._layout
    assert layout == "stock"


@pytest.mark.parametrize("mode", ["context", "condense_plus_context"])
@pytest.mark.parametrize("form", FORMS)
async def test_an_llm_of_another_kind_works_as_well(mode: str, form: str) -> None:
    """LlamaIndex's mock echoes its prompt: system prompt, nodes and history are there."""
    chat = as_chat_engine(index_of(TEXTS[2:]), mode, MockLLM(), system_prompt="Talk like a pirate.")
    first = str(await ask(chat, form, "Hello World!"))
    assert (
        first.index("Talk like a pirate.") < first.index("Dogs are") < first.index("Hello World!")
    )
    second = str(await ask(chat, form, "What is the capital of the moon?"))
    assert "Hello World!" in second
    assert second.rindex("Dogs are") < second.rindex("the capital of the moon?")
    assert [m.role.value for m in chat.chat_history] == ["user", "assistant"] * 2
    chat.reset()
    assert chat.chat_history == []


def test_ten_turns_beside_the_stock_engine() -> None:
    """What `benchmarks/bench_rag.py` measures on the demo model, on a tiny one."""
    notes = {f"{n}?": f"Note {n} of the house is long. " * 4 for n in range(10)}
    prefilled, prompts, answers = {}, {}, {}
    for reuse in (True, False):
        with Engine(tiny_model("llama"), TOKENIZER, EngineConfig(reuse=reuse)) as engine:
            for kind in (ContextChatEngine, StockContextChatEngine):
                llm = CacheFriendlyLLM(
                    engine=engine, max_new_tokens=2, generate_kwargs={"do_sample": False}
                )
                chat = kind.from_defaults(
                    WordRetriever(notes),
                    llm=llm,
                    system_prompt="Be brief.",
                    context_template="{context_str}",
                    memory=StockChatMemoryBuffer.from_defaults(llm=llm),
                )
                before = len(engine.reports())
                said = [chat.chat(f"Question {number}?").response for number in range(10)]
                reports = engine.reports()[before:]
                key = (kind is ContextChatEngine, reuse)
                prefilled[key] = [report.prefilled_tokens for report in reports]
                prompts[key] = [report.prompt_tokens for report in reports]
                answers[key] = said
    for own in (True, False):
        assert answers[own, True] == answers[own, False]
        assert prefilled[own, False] == prompts[own, False] == prompts[own, True]
    turn = 1 + len(f"E\nSuser\n{notes['1?']}\nQuestion 1?E\nSassistant\n")
    assert prefilled[True, True][1:] == [turn] * 9  # nodes and question, whatever came before
    kept = len("Ssystem\nNote ")  # where the nodes of two turns part
    assert prefilled[False, True][1:] == [tokens - kept for tokens in prompts[False, True][1:]]
    assert all(prefilled[True, True][n] < prefilled[False, True][n] for n in range(1, 10))

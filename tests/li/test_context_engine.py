"""`ContextChatEngine` against a scripted engine: what is sent, kept, shown and given back."""

from __future__ import annotations

import inspect
import json
from types import SimpleNamespace
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.chat_engine import ContextChatEngine as StockContextChatEngine
from llama_index.core.memory import ChatMemoryBuffer as StockChatMemoryBuffer
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import QueryBundle

from cachefriendly.errors import ConfigError
from cachefriendly.messages import Message
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import CacheFriendlyLLM, ChatMemoryBuffer, ContextChatEngine
from tests.li.documents import FORMS, WordRetriever, ask, found

REPLY = Message("assistant", " An answer.\n", reasoning="hm", handle="cf1:0:1")
POOL = "The pool is on the roof. {query_str} {context_str}"
HEAD = "Use the context information below to assist the user.\n--------------------\n"


def engine_on(engine: Any, retriever: Any = None, **options: Any) -> Any:
    options.setdefault("system_prompt", "Be brief.")
    return ContextChatEngine.from_defaults(
        retriever or WordRetriever(), llm=CacheFriendlyLLM(engine=engine), **options
    )


def test_arguments_are_those_of_the_stock_class_and_a_layout() -> None:
    assert issubclass(ContextChatEngine, StockContextChatEngine)
    for name in ("__init__", "from_defaults", "chat", "stream_chat", "achat", "astream_chat"):
        ours = inspect.signature(getattr(ContextChatEngine, name)).parameters
        stock = inspect.signature(getattr(StockContextChatEngine, name)).parameters
        assert [n for n in ours if n != "layout"] == list(stock)
        assert all(ours[n].default == p.default for n, p in stock.items())
    with pytest.raises(ConfigError, match="layout='top' is unknown; use 'tail' or 'stock'"):
        engine_on(ScriptedEngine(REPLY), layout="top")
    with pytest.raises(ValueError, match="Cannot specify both"):
        engine_on(ScriptedEngine(REPLY), prefix_messages=[])


@pytest.mark.parametrize("form", FORMS)
async def test_nodes_stand_in_the_newest_user_message_and_stay_there(form: str) -> None:
    """Case 15. Braces in a document are text, now and when the turn is sent again."""
    engine = ScriptedEngine(REPLY)
    chat = engine_on(engine)
    first = await ask(chat, form, "Where is the pool?")
    second = await ask(chat, form, "And the tram?")
    one, two = (request.messages for request in engine.requests)
    assert one[0] == Message("system", "Be brief.")
    assert one[1].content == f"{HEAD}{POOL}\n--------------------\n\nWhere is the pool?"
    assert two[:3] == (*one, REPLY)
    assert two[3].content.endswith(
        "The tram leaves every ten minutes.\n--------------------\n\nAnd the tram?"
    )
    assert first.source_nodes[0].text == POOL
    assert second.sources[0].tool_name == "retriever"
    assert second.sources[0].raw_input == {"message": "And the tram?"}
    assert second.sources[0].raw_output == second.source_nodes


@pytest.mark.parametrize("form", FORMS)
async def test_the_history_shows_questions_and_replies_as_generated(form: str) -> None:
    chat = engine_on(ScriptedEngine(REPLY))
    await ask(chat, form, "Where is the pool?")
    asked, answered = chat.chat_history
    assert (asked.role, asked.content) == (MessageRole.USER, "Where is the pool?")
    assert answered.content == " An answer.\n"
    assert answered.additional_kwargs["cachefriendly"] == "cf1:0:1"
    chat.reset()
    assert chat.chat_history == []


@pytest.mark.parametrize("form", FORMS)
async def test_a_history_can_be_handed_to_another_engine(form: str) -> None:
    """As objects or through JSON: what was sent is sent again."""
    engine = ScriptedEngine(REPLY)
    chat = engine_on(engine)
    await ask(chat, form, "Where is the pool?")
    stored = json.dumps([message.model_dump(mode="json") for message in chat.chat_history])
    history = [ChatMessage.model_validate(message) for message in json.loads(stored)]
    await ask(engine_on(engine), form, "And the tram?", chat_history=history)
    await ask(engine_on(engine, chat_history=chat.chat_history), form, "And the tram?")
    one, two, three = (request.messages for request in engine.requests)
    assert two == three
    assert two[:3] == (*one, REPLY)


async def test_a_memory_goes_on_in_another_process() -> None:
    engine = ScriptedEngine(REPLY)
    chat = engine_on(engine)
    chat.chat("Where is the pool?")
    memory = ChatMemoryBuffer.from_string(chat._memory.to_string())
    later = engine_on(engine, memory=memory)
    await ask(later, "achat", "And the tram?")
    one, two = (request.messages for request in engine.requests)
    assert two[:3] == (*one, REPLY)
    assert [m.content for m in later.chat_history][::2] == ["Where is the pool?", "And the tram?"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [{}, {"system_prompt": None}])
async def test_the_stock_layout_is_the_stock_engine(form: str, options: dict[str, Any]) -> None:
    sent = []
    for make in (ContextChatEngine, StockContextChatEngine):
        engine = ScriptedEngine(REPLY)
        llm = CacheFriendlyLLM(engine=engine)
        extra = {"layout": "stock"} if make is ContextChatEngine else {}
        memory = StockChatMemoryBuffer.from_defaults()
        settings = {"system_prompt": "Be brief.", "memory": memory, **options, **extra}
        chat = make.from_defaults(WordRetriever(), llm=llm, **settings)
        texts = [str(await ask(chat, form, q)) for q in ("Where is the pool?", "And the tram?")]
        history = [(m.role, m.content) for m in chat.chat_history]
        sent.append((engine.requests, texts, history))
    assert sent[0] == sent[1]
    assert "The pool" in sent[0][0][0].messages[0].content


def test_each_layout_has_the_memory_that_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the stock layout it is LlamaIndex that decides."""
    memory = engine_on(ScriptedEngine(REPLY))._memory
    assert type(memory) is ChatMemoryBuffer
    assert memory.token_limit == 2048 * 3 // 4
    given: list[Any] = []
    monkeypatch.setattr(
        StockContextChatEngine,
        "from_defaults",
        classmethod(
            lambda cls, *_, **options: given.append(options["memory"]) or SimpleNamespace()
        ),
    )
    engine_on(ScriptedEngine(REPLY), layout="stock")
    assert given == [None]


@pytest.mark.parametrize("form", FORMS)
async def test_without_nodes_the_answer_is_empty_or_over_earlier_nodes(form: str) -> None:
    engine = ScriptedEngine(REPLY)
    chat = engine_on(engine)
    assert str(await ask(chat, form, "What else?")) == "Empty Response"
    assert engine.requests == []
    assert [m.content for m in chat.chat_history] == ["What else?", "Empty Response"]
    response = await ask(chat, form, "What else?", prev_chunks=found("Dogs are welcome."))
    assert response.source_nodes[0].text == "Dogs are welcome."
    assert "Dogs are welcome." in engine.requests[0].messages[-1].content


async def test_templates_and_postprocessors_of_ones_own() -> None:
    engine = ScriptedEngine(REPLY)
    chat = engine_on(
        engine,
        context_template="Q: {query_str}\nNotes: {context_str}",
        node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.9)],
    )
    for form in FORMS:
        assert str(await ask(chat, form, "The pool?")) == "Empty Response"
    chat = engine_on(engine, context_template="Q: {query_str}\nNotes: {context_str}")
    chat.chat("The pool?")
    assert engine.requests[-1].messages[-1].content == f"Q: The pool?\nNotes: {POOL}"
    shout = PromptTemplate(
        "{context_str}", function_mappings={"context_str": lambda **kw: kw["context_str"].upper()}
    )
    chat = engine_on(engine, context_template=shout)
    chat.chat("The tram?")
    last = engine.requests[-1].messages[-1].content
    assert last == "THE TRAM LEAVES EVERY TEN MINUTES.\n\nThe tram?"


@pytest.mark.parametrize("form", FORMS)
async def test_a_question_may_be_a_query_bundle(form: str) -> None:
    engine = ScriptedEngine(REPLY)
    chat = engine_on(engine)
    await ask(chat, form, QueryBundle("Where is the pool?"))
    assert engine.requests[0].messages[-1].content.endswith("\n\nWhere is the pool?")
    assert chat.chat_history[0].content == "Where is the pool?"


async def test_messages_of_other_roles_stay_in_the_history() -> None:
    """Prefix messages and a history with tool results go through as they are."""
    engine = ScriptedEngine(REPLY)
    call = {"id": "c", "function": {"name": "look", "arguments": "{}"}, "type": "function"}
    prefix = [
        ChatMessage("Be brief.", role="system"),
        ChatMessage("Hi."),
        ChatMessage("Hello.", role="assistant"),
    ]
    history = [
        ChatMessage("Look."),
        ChatMessage("", role="assistant", additional_kwargs={"tool_calls": [call]}),
        ChatMessage("Seen.", role="tool", additional_kwargs={"tool_call_id": "c"}),
        ChatMessage("I saw.", role="assistant"),
    ]
    chat = engine_on(engine, system_prompt=None, prefix_messages=prefix, chat_history=history)
    await ask(chat, "achat", "The pool?")
    sent = engine.requests[0].messages
    roles = [message.role for message in sent]
    assert roles == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert sent[5].tool_call_id == "c"

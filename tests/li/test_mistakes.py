"""What a newcomer gets wrong is refused or warned about, with the way out; nothing is ignored."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core import SummaryIndex
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool

from cachefriendly import EngineConfig
from cachefriendly.errors import ConfigError, RequestError
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import (
    CacheFriendlyLLM,
    ChatMemoryBuffer,
    CondensePlusContextChatEngine,
    ContextChatEngine,
    FunctionAgent,
    ReActAgent,
    SimpleChatEngine,
    as_chat_engine,
)

pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")

LLM = CacheFriendlyLLM(engine=ScriptedEngine())
INDEX = SummaryIndex.from_documents([])
RETRIEVER = INDEX.as_retriever()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"engine_config": EngineConfig(reuse=False)}, "engine_config= cannot change an engine"),
        ({"model": "path"}, "model='path' has no effect beside engine="),
        ({"model_kwargs": {"dtype": "float16"}}, "model_kwargs=.* has no effect beside engine="),
        ({"tokenizer_name": "path"}, "tokenizer_name='path' has no effect"),
        ({"tokenizer_kwargs": {"max_length": 9}}, "tokenizer_kwargs=.* has no effect"),
        ({"device_map": "cuda"}, "device_map='cuda' has no effect"),
    ],
)
def test_what_says_how_to_load_is_refused_beside_an_engine(
    options: dict[str, Any], error: str
) -> None:
    with pytest.raises(ConfigError, match=error):
        CacheFriendlyLLM(engine=ScriptedEngine(), **options)


def test_defaults_may_stand_beside_an_engine() -> None:
    defaults = {"model": None, "model_kwargs": {}, "tokenizer_kwargs": None, "device_map": "auto"}
    engine = ScriptedEngine()
    assert CacheFriendlyLLM("its name", engine=engine, **defaults).engine is engine


@pytest.mark.parametrize("value", ["path", object()])
def test_an_engine_that_is_none_is_named(value: Any) -> None:
    with pytest.raises(ConfigError, match="is no cachefriendly Engine"):
        CacheFriendlyLLM(engine=value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("temperature", r"generate_kwargs=\{'temperature': ...\}"),
        ("do_sample", r"generate_kwargs=\{'do_sample': ...\}"),
        ("load_in_4bit", r"options for loading into model_kwargs=\{...\}"),
        ("engin", "did you mean 'engine'"),
    ],
)
def test_an_option_says_where_it_belongs(name: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        CacheFriendlyLLM("path", **{name: 1})


@pytest.mark.parametrize("message", ["hi", {"role": "user", "content": "hi"}, ("user", "hi")])
def test_a_message_of_another_kind_is_named(message: Any) -> None:
    error = f"message 0: a {type(message).__name__} is no ChatMessage"
    with pytest.raises(RequestError, match=error):
        ChatMemoryBuffer.from_defaults().put(message)
    if isinstance(message, dict):  # LlamaIndex's own events refuse the others first
        with pytest.raises(RequestError, match=error):
            CacheFriendlyLLM(engine=ScriptedEngine()).chat([message])


ENGINES = [SimpleChatEngine, ContextChatEngine, CondensePlusContextChatEngine]


def made(kind: Any, **options: Any) -> Any:
    retriever = () if kind is SimpleChatEngine else (RETRIEVER,)
    return kind.from_defaults(*retriever, **{"llm": LLM, **options})


@pytest.mark.parametrize("kind", ENGINES)
def test_an_engine_belongs_to_the_llm(kind: Any) -> None:
    with pytest.raises(ConfigError, match=r"engine= belongs to the LLM; give llm=CacheFriendlyLLM"):
        made(kind, engine=ScriptedEngine())
    with pytest.raises(ConfigError, match="llm=ScriptedEngine is no LLM"):
        made(kind, llm=ScriptedEngine())
    with pytest.raises(ConfigError, match="llm=ScriptedEngine is no LLM"):
        as_chat_engine(INDEX, llm=ScriptedEngine())


@pytest.mark.parametrize(
    ("kind", "name", "warning"),
    [
        *[(kind, "sytem_prompt", "did you mean system_prompt=") for kind in ENGINES],
        (SimpleChatEngine, "node_postprocessors", "node_postprocessors= has no effect in Simple"),
        (ContextChatEngine, "skip_condense", "skip_condense= has no effect in ContextChatEngine"),
        (ContextChatEngine, "context_prompt", "did you mean context_template="),
        (CondensePlusContextChatEngine, "context_template", "did you mean context_prompt="),
    ],
)
def test_an_ignored_argument_of_a_chat_engine_is_named(
    caplog: pytest.LogCaptureFixture, kind: Any, name: str, warning: str
) -> None:
    made(kind, **{name: None})
    (text,) = caplog.messages
    assert warning in text


@pytest.mark.parametrize("mode", ["simple", "context", "condense_plus_context"])
def test_arguments_of_a_retriever_and_a_layout_pass(
    caplog: pytest.LogCaptureFixture, mode: Any
) -> None:
    options = {"similarity_top_k": 1, "filters": None, "layout": "tail", "verbose": False}
    as_chat_engine(INDEX, chat_mode=mode, llm=LLM, **options)
    assert caplog.messages == []


@pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent])
@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("memory", "memory= has no effect in {}; give it to run(memory=...)"),
        ("sytem_prompt", "sytem_prompt= has no effect in {}; did you mean system_prompt=?"),
        ("frobnicate", "frobnicate= has no effect in {}"),
    ],
)
def test_an_ignored_argument_of_an_agent_is_named(
    caplog: pytest.LogCaptureFixture, kind: Any, name: str, warning: str
) -> None:
    kind(tools=[], llm=LLM, timeout=3.0, verbose=False, **{name: 1})
    assert caplog.messages == [warning.format(kind.__name__)]


@pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent])
def test_an_engine_belongs_to_the_llm_of_an_agent(kind: Any) -> None:
    with pytest.raises(ValueError, match="engine= belongs to the LLM"):
        kind(llm=LLM, engine=ScriptedEngine())
    with pytest.raises(ValueError, match="llm=ScriptedEngine is no LLM"):
        kind(llm=ScriptedEngine())


def double(a: int) -> int:
    """Twice the number."""
    return 2 * a


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"temprature": 0}, "unknown generation option 'temprature'; did you mean 'temperature'"),
        ({"max_length": 9}, "is set with max_tokens or max_new_tokens"),
        (
            {"tool_required": True, "max_new_tokens": 3},
            r"raise max_tokens \(or max_new_tokens\) to at least \d+",
        ),
    ],
)
def test_a_generation_option_says_what_it_is_called(
    tiny_llm: CacheFriendlyLLM, options: dict[str, Any], error: str
) -> None:
    tools = [FunctionTool.from_defaults(double)] if "tool_required" in options else []
    with pytest.raises(RequestError, match=error):
        tiny_llm.chat([ChatMessage("hi")], tools=tools, **options)

"""Bad input gets an error that names the value and the way out, in the caller's own line."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from cachefriendly import (
    ChatRequest,
    ConfigError,
    ContextOverflow,
    Engine,
    EngineConfig,
    Message,
    RequestError,
    Sampling,
    SchemaError,
    TemplateError,
    Tool,
)
from cachefriendly.testing import byte_tokenizer, tiny_model

HELLO = Message("user", "Hello")


def chat(engine: Engine, *messages: Any, **request: Any) -> Any:
    return engine.chat(ChatRequest(tuple(messages), **request)).result()


def test_empty_message_list(demo_engine: Engine) -> None:
    with pytest.raises(RequestError, match=r"message list is empty; send at least one"):
        chat(demo_engine)


def test_unknown_role(demo_engine: Engine) -> None:
    with pytest.raises(RequestError, match=r"message 1: unknown role 'wizard'; use one of system"):
        chat(demo_engine, HELLO, Message("wizard", "hi"))  # type: ignore[arg-type]


def test_content_that_is_not_text(demo_engine: Engine) -> None:
    image: Any = [{"type": "image", "url": "x"}]
    with pytest.raises(RequestError, match=r"message 0 \(user\): content is list.*send a string"):
        chat(demo_engine, Message("user", image))


def test_tool_result_without_a_call(demo_engine: Engine) -> None:
    result = Message("tool", "42", tool_call_id="call_9")
    with pytest.raises(RequestError, match=r"message 1: tool result for call 'call_9'.*keep the"):
        chat(demo_engine, HELLO, result)


def test_prompt_longer_than_the_window() -> None:
    config = EngineConfig(context_window=64)
    with (
        Engine(tiny_model("llama"), byte_tokenizer(), config) as engine,
        pytest.raises(ContextOverflow, match=r"\d+ tokens, but the context window is 64; shorten"),
    ):
        chat(engine, Message("user", "x" * 100))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.5),
        ("temperature", math.nan),
        ("top_p", 1.5),
        ("top_k", -1),
        ("max_tokens", 0),
        ("max_tokens", True),
        ("repetition_penalty", 0),
        ("seed", -1),
        ("seed", 1.5),
        ("max_tokens", 2.5),
        ("temperature", math.inf),
        ("temperature", "hot"),
    ],
)
def test_settings_out_of_range(name: str, value: Any) -> None:
    with pytest.raises(
        RequestError, match=rf"{name}=.* is not usable; it must be a (whole )?number"
    ):
        Sampling(**{name: value})


def test_stop_token_ids_must_be_ids() -> None:
    with pytest.raises(RequestError, match=r"stop_token_ids=.* must be a tuple of token ids"):
        Sampling(stop_token_ids=("x",))  # type: ignore[arg-type]


def test_unknown_options(demo_engine: Engine) -> None:
    with pytest.raises(RequestError, match=r"'temprature'; did you mean 'temperature'\?"):
        Sampling(temprature=1)
    with pytest.raises(ConfigError, match=r"unknown option 'kv_byte'; did you mean 'kv_bytes'\?"):
        EngineConfig(kv_byte=3)
    with pytest.raises(ConfigError, match=r"unknown option 'colour'; known: .*reuse"):
        EngineConfig.from_options(colour="red")
    with pytest.raises(RequestError, match="unknown generation option 'penalty'"):
        chat(demo_engine, HELLO, sampling=Sampling(extra={"penalty": 2}))


@pytest.mark.parametrize(
    ("option", "value", "way_out"),
    [
        ("num_beams", 4, "has no effect on this engine"),
        ("use_cache", False, "has no effect on this engine"),
        ("max_new_tokens", 5, "set with max_tokens here"),
        ("stop_strings", ["x"], "set with stop here"),
        ("update", 1, "unknown generation option"),
    ],
)
def test_generation_options_without_effect(
    demo_engine: Engine, option: str, value: Any, way_out: str
) -> None:
    with pytest.raises(RequestError, match=way_out):
        chat(demo_engine, HELLO, sampling=Sampling(extra={option: value}))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("history", "exactly"),
        ("kv_bytes", 0),
        ("kv_bytes", math.inf),
        ("max_rows", math.nan),
        ("max_rows", None),
        ("max_rows", 1.5),
        ("reuse", "no"),
    ],
)
def test_engine_options(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=option):
        EngineConfig(**{option: value})


def test_schema_that_is_not_json_schema(demo_engine: Engine) -> None:
    tool = Tool("search", "Search", {"type": "object", "properties": {"q": {"type": "text"}}})
    with pytest.raises(SchemaError, match=r"tool 'search'.*text"):
        chat(demo_engine, HELLO, tools=(tool,))


def test_choice_of_a_tool_that_is_not_there(demo_engine: Engine) -> None:
    tool = Tool("search", "Search", {"type": "object", "properties": {}})
    with pytest.raises(RequestError, match="names 'find', but the tools are search"):
        chat(demo_engine, HELLO, tools=(tool,), tool_choice=("name", "find"))
    with pytest.raises(RequestError, match="needs tools, but none were given"):
        chat(demo_engine, HELLO, tool_choice="required")


def test_what_is_no_model_and_no_request(demo_engine: Engine) -> None:
    with pytest.raises(
        ConfigError, match=r"the model is a Token\w+, not a transformers PreTrainedModel"
    ):
        Engine(byte_tokenizer(), tiny_model("llama"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="there is nothing at '/no/where'"):
        Engine.from_pretrained("/no/where")
    with pytest.raises(RequestError, match="chat takes a ChatRequest, not str"):
        demo_engine.chat("hi")  # type: ignore[arg-type]


def test_a_small_vocabulary_passes_the_check() -> None:
    model = tiny_model("llama", vocab_size=264, pad_token_id=257, eos_token_id=257)
    with Engine(model, byte_tokenizer()) as engine:
        assert chat(engine, HELLO, sampling=Sampling(max_tokens=2)).report.generated_tokens


def test_model_without_chat_template() -> None:
    with (
        Engine(tiny_model("llama"), byte_tokenizer(None)) as engine,
        pytest.raises(TemplateError, match="chat_template"),
    ):
        chat(engine, HELLO)


TOO_FEW = r"raise max_tokens \(or max_new_tokens\) to at least \d+$"


def test_budget_too_small_for_the_schema(demo_engine: Engine) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
    }
    with pytest.raises(RequestError, match=TOO_FEW) as error:
        chat(demo_engine, HELLO, response_schema=schema, sampling=Sampling(max_tokens=3))

    enough = int(str(error.value).rpartition(" ")[2])
    told = Sampling(max_tokens=enough)
    reply = chat(demo_engine, HELLO, response_schema=schema, sampling=told)
    assert json.loads(reply.message.content).keys() == {"name", "age"}

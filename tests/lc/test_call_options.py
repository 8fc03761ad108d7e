"""What the constructor and a call take and refuse: options, tools, structured output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from pydantic import BaseModel, ValidationError

from cachefriendly.errors import ConfigError, RequestError
from cachefriendly.testing import ScriptedEngine
from cachefriendly_lc import ChatCacheFriendly, ChatHuggingFace

TEXT = "one two three"


@pytest.fixture
def model() -> ChatCacheFriendly:
    return ChatCacheFriendly(engine=ScriptedEngine(TEXT))


def test_alias() -> None:
    assert ChatHuggingFace is ChatCacheFriendly


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "no model; give engine="),
        ({"engine": 3}, "engine=int is no cachefriendly Engine"),
        ({"llm": object()}, "llm=object holds no local pipeline"),
        ({"engine": ScriptedEngine(TEXT), "temprature": 1}, "did you mean 'temperature'"),
        ({"engine": ScriptedEngine(TEXT), "model_kwargs": {"dtype": "x"}}, "'dtype' cannot change"),
        ({"engine": ScriptedEngine(TEXT), "temperature": -1}, "temperature=-1"),
        ({"engine": ScriptedEngine(TEXT), "temperature": float("nan")}, "temperature=nan"),
        ({"engine": ScriptedEngine(TEXT), "timeout": -1}, "timeout=-1"),
    ],
)
def test_constructor_refuses(options: dict[str, Any], error: str) -> None:
    with pytest.raises((ConfigError, RequestError), match=error):
        ChatCacheFriendly(**options)
    with pytest.raises(ValidationError):
        ChatCacheFriendly(engine=ScriptedEngine(TEXT), temperature="warm")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda m: m.invoke([]), "message list is empty"),
        (lambda m: m.invoke("hi", top_pp=1), "unknown option 'top_pp'; did you mean 'top_p'"),
        (lambda m: m.invoke("hi", temperature=-0.5), "temperature=-0.5"),
        (lambda m: m.bind_tools([], tool_choice="any"), "needs tools"),
        (lambda m: m.bind_tools([print_it], tool_choic="any"), "did you mean 'tool_choice'"),
        (lambda m: m.invoke("hi", parallel_tool_calls="no"), "parallel_tool_calls='no'"),
        (lambda m: m.with_structured_output(Answer, methd="x"), "unknown option 'methd'"),
        (lambda m: m.with_structured_output(Answer, method="yaml"), "method='yaml' is unknown"),
        (lambda m: m.with_structured_output(), "method='json_schema' needs a schema"),
    ],
)
def test_calls_refuse(model: ChatCacheFriendly, call: Callable[[Any], Any], error: str) -> None:
    with pytest.raises(RequestError, match=error):
        call(model)


class Answer(BaseModel):
    """An answer."""

    text: str


def print_it(text: str) -> None:
    """Print the text."""


def test_tools_and_choice_reach_the_request(model: ChatCacheFriendly) -> None:
    model.bind_tools([print_it], tool_choice="any").invoke("hi")
    model.bind_tools([print_it], tool_choice="print_it").invoke("hi")
    model.bind_tools([print_it]).invoke("hi")
    assert [request.tool_choice for request in model.engine.requests] == [
        "required",
        ("name", "print_it"),
        "auto",
    ]
    assert [tool.name for tool in model.engine.requests[0].tools] == ["print_it"]


@pytest.mark.parametrize("parallel", [None, True, False])
def test_whether_a_reply_may_hold_several_calls_reaches_the_request(
    model: ChatCacheFriendly, parallel: bool | None
) -> None:
    model.bind_tools([print_it], parallel_tool_calls=parallel).invoke("hi")
    assert model.engine.requests[0].parallel_tool_calls is parallel


@pytest.mark.parametrize("method", ["json_schema", "json_mode"])
def test_structured_output(method: Any) -> None:
    engine = ScriptedEngine('{"text": "x"}')
    model = ChatCacheFriendly(engine=engine)
    assert model.with_structured_output(Answer, method=method).invoke("hi") == Answer(text="x")
    raw = model.with_structured_output(Answer, method=method, include_raw=True).invoke("hi")
    assert isinstance(raw["raw"], AIMessage)
    assert raw["parsed"] == Answer(text="x")
    assert raw["parsing_error"] is None
    schema = model.with_structured_output(Answer.model_json_schema(), method=method)
    assert schema.invoke("hi") == {"text": "x"}
    engine.replies = ["torn {"]
    raw = model.with_structured_output(Answer, method=method, include_raw=True).invoke("hi")
    assert raw["parsed"] is None
    assert raw["parsing_error"] is not None
    wanted = engine.requests[0].response_schema
    assert wanted is not None
    assert wanted["type"] == "object"
    assert wanted["properties"]["text"]["type"] == "string"


def test_json_mode_without_a_schema() -> None:
    engine = ScriptedEngine('{"text": "x"}')
    model = ChatCacheFriendly(engine=engine).with_structured_output(method="json_mode")
    assert model.invoke("hi") == {"text": "x"}
    assert engine.requests[0].response_schema == {"type": "object"}

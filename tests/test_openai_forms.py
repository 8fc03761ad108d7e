"""Tools and tool choices as plain JSON, there and back."""

from __future__ import annotations

from typing import Any

import pytest

from cachefriendly.errors import RequestError, SchemaError
from cachefriendly.messages import Tool
from cachefriendly.openai_forms import (
    parse_tool_choice,
    tool_choice_to_openai,
    tool_from_openai,
    tool_to_openai,
)

WEATHER = Tool(
    "weather", "Weather of a city.", {"type": "object", "properties": {"city": {"type": "string"}}}
)


def test_a_tool_survives_the_way_there_and_back() -> None:
    assert tool_from_openai(tool_to_openai(WEATHER)) == WEATHER
    assert tool_from_openai(tool_to_openai(WEATHER)["function"]) == WEATHER


def test_a_tool_without_parameters_takes_none() -> None:
    expected = Tool("now", "", {"type": "object", "properties": {}})
    assert tool_from_openai({"type": "function", "function": {"name": "now"}}) == expected


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"type": "function"}, r"keys \['type'\] names no function"),
        ({"type": "function", "function": "add"}, "names no function"),
        ({"name": "f", "parameters": [1]}, "tool 'f': parameters is a list"),
    ],
)
def test_what_is_no_tool_is_refused(spec: dict[str, Any], error: str) -> None:
    with pytest.raises(SchemaError, match=error):
        tool_from_openai(spec)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, "auto"),
        (False, "auto"),
        (True, "required"),
        ("auto", "auto"),
        ("none", "none"),
        ("any", "required"),
        ("required", "required"),
        ({"type": "any"}, "required"),
        ("add", ("name", "add")),
        ({"type": "function", "function": {"name": "add"}}, ("name", "add")),
        ({"type": "tool", "name": "add"}, ("name", "add")),
        ({"type": "function", "function": {"name": "any"}}, ("name", "any")),
    ],
)
def test_every_spelling_of_a_choice(given: Any, expected: Any) -> None:
    names = ["add", "any"]
    choice = parse_tool_choice(given, names)
    assert choice == expected
    assert parse_tool_choice(tool_choice_to_openai(choice), names) == expected


@pytest.mark.parametrize(
    ("given", "names", "error"),
    [
        ("subtract", ["add"], "tool_choice='subtract' is unknown; .* the tools are: add$"),
        ("subtract", [], "the tools are: none$"),
        ("any", [], "tool_choice='any' needs tools, but this call has none"),
        (True, [], "tool_choice=True needs tools"),
        ({"type": "what"}, ["add"], "tool_choice=.* is unknown"),
        ({"type": ["x"]}, ["add"], "tool_choice=.* is unknown"),
        (3, ["add"], "tool_choice=3 is unknown"),
    ],
)
def test_a_choice_that_cannot_be_meant(given: Any, names: list[str], error: str) -> None:
    with pytest.raises(RequestError, match=error):
        parse_tool_choice(given, names)

"""Tools, tool choices and response formats in all the forms LangChain takes."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.tools import tool
from pydantic import BaseModel
from typing_extensions import TypedDict

from cachefriendly.errors import RequestError, SchemaError
from cachefriendly.messages import Tool
from cachefriendly_lc.tools import (
    choice_from_langchain,
    choice_to_openai,
    openai_tools,
    response_schema,
    schema_format,
    tools_from_openai,
)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Person(BaseModel):
    """A person."""

    name: str


class Place(TypedDict):
    """A place."""

    city: str


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def test_every_form_of_a_tool() -> None:
    schema = {"title": "Thing", "type": "object", "properties": {"x": {"type": "string"}}}
    tools = tools_from_openai(openai_tools([multiply, add, Person, Place, schema]))
    assert [t.name for t in tools] == ["multiply", "add", "Person", "Place", "Thing"]
    assert tools[1].description == "Add two numbers."
    assert tools[1].parameters["required"] == ["a", "b"]
    assert all(t.parameters["type"] == "object" for t in tools)


def test_tool_without_parameters_takes_none() -> None:
    spec = {"type": "function", "function": {"name": "now"}}
    assert tools_from_openai(openai_tools([spec])) == (
        Tool("now", "", {"type": "object", "properties": {}}),
    )


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"type": "web_search_preview"}, "tool 0 \\('web_search_preview'\\) is no function tool"),
        ({"nothing": 1}, "tool 0 .* cannot be turned into a JSON Schema"),
        (3, "tool 0 \\('int'\\)"),
        ({"type": "function", "function": {"name": "x", "parameters": "nope"}}, "tool 'x': param"),
    ],
)
def test_unusable_tools_are_named(bad: Any, error: str) -> None:
    with pytest.raises(SchemaError, match=error):
        tools_from_openai(openai_tools([bad]))


def test_two_tools_of_one_name() -> None:
    with pytest.raises(RequestError, match="two tools are called 'add'"):
        tools_from_openai(openai_tools([add, add]))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, "auto"),
        (False, "auto"),
        ("auto", "auto"),
        ("none", "none"),
        ("any", "required"),
        ("required", "required"),
        (True, "required"),
        ({"type": "any"}, "required"),
        ("add", ("name", "add")),
        ({"type": "function", "function": {"name": "add"}}, ("name", "add")),
        ({"type": "tool", "name": "add"}, ("name", "add")),
    ],
)
def test_tool_choice(given: Any, expected: Any) -> None:
    choice = choice_from_langchain(given, ["add"])
    assert choice == expected
    assert choice_from_langchain(choice_to_openai(choice), ["add"]) == expected


@pytest.mark.parametrize(
    ("given", "names", "error"),
    [
        ("subtract", ["add"], "tool_choice='subtract', but no tool has that name; .*: add"),
        ("any", [], "tool_choice='any' without tools"),
        ({"type": "what"}, ["add"], "tool_choice=.* is unknown"),
        (3, ["add"], "tool_choice=3 is unknown"),
    ],
)
def test_unusable_tool_choice(given: Any, names: list[str], error: str) -> None:
    with pytest.raises(RequestError, match=error):
        choice_from_langchain(given, names)


@pytest.mark.parametrize("schema", [Person, Person.model_json_schema()])
def test_response_format_of_a_schema(schema: Any) -> None:
    wanted = response_schema(schema_format(schema))
    assert wanted is not None
    assert wanted["properties"]["name"]["type"] == "string"


def test_response_format_forms() -> None:
    assert response_schema(None) is None
    assert response_schema({"type": "text"}) is None
    assert response_schema({"type": "json_object"}) == {"type": "object"}
    assert response_schema(Person) == response_schema(schema_format(Person))
    for bad in ({"type": "json_schema"}, {"type": "xml"}, "json"):
        with pytest.raises(SchemaError, match="response_format"):
            response_schema(bad)

"""Tools and response formats in all the forms LangChain takes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from cachefriendly.errors import SchemaError
from cachefriendly.openai_forms import tool_from_openai
from cachefriendly_lc.tools import openai_tools, response_schema, schema_format
from tests.lc.tool_box import add


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
    tools = [tool_from_openai(t) for t in openai_tools([multiply, add, Person, Place, schema])]
    assert [t.name for t in tools] == ["multiply", "add", "Person", "Place", "Thing"]
    assert tools[1].description == "Add two numbers."
    assert tools[1].parameters["required"] == ["a", "b"]
    assert all(t.parameters["type"] == "object" for t in tools)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"type": "web_search_preview"}, "tool 0 \\('web_search_preview'\\) is no function tool"),
        ({"nothing": 1}, "tool 0 .* cannot be turned into a JSON Schema"),
        (3, "tool 0 \\('int'\\)"),
    ],
)
def test_unusable_tools_are_named(bad: Any, error: str) -> None:
    with pytest.raises(SchemaError, match=error):
        openai_tools([bad])


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

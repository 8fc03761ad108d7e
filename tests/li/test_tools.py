"""Tools, tool choices and selections."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.tools import FunctionTool, ToolMetadata

from cachefriendly.errors import RequestError, SchemaError
from cachefriendly.messages import Tool
from cachefriendly_li.tools import to_tool, to_tool_choice, to_tools, tool_selections, tool_spec


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


ADD = FunctionTool.from_defaults(add)
WEATHER = Tool("weather", "Weather of a city.", {"type": "object", "properties": {}})


def test_a_function_tool_becomes_a_tool() -> None:
    tool = to_tool(ADD)
    assert tool.name == "add"
    assert "Add two numbers." in tool.description
    assert tool.parameters["required"] == ["a"]
    assert list(tool.parameters["properties"]) == ["a", "b"]


def test_a_spec_and_the_tool_it_came_from_are_the_same() -> None:
    assert to_tool(tool_spec(ADD)) == to_tool(ADD)
    assert to_tool(tool_spec(ADD)["function"]) == to_tool(ADD)
    assert to_tool(WEATHER) is WEATHER


def test_the_given_order_stays() -> None:
    assert [tool.name for tool in to_tools([WEATHER, ADD])] == ["weather", "add"]


@pytest.mark.parametrize(
    ("choice", "required", "expected"),
    [
        (None, False, "auto"),
        (None, True, "required"),
        ("any", False, "required"),
        ("required", False, "required"),
        ("none", False, "none"),
        ("auto", True, "auto"),
        ("add", False, ("name", "add")),
        ({"type": "function", "function": {"name": "add"}}, False, ("name", "add")),
    ],
)
def test_tool_choice(choice: Any, required: bool, expected: Any) -> None:
    assert to_tool_choice(choice, required=required, tools=(to_tool(ADD),)) == expected


def test_a_tool_choice_that_is_no_tool_is_named_with_those_there_are() -> None:
    with pytest.raises(RequestError, match=r"tool_choice='sub' is unknown; use one of .*, add$"):
        to_tool_choice("sub", required=False, tools=(to_tool(ADD),))
    with pytest.raises(RequestError, match="tool_choice=3 is not usable"):
        to_tool_choice(3, required=False, tools=(to_tool(ADD),))
    with pytest.raises(RequestError, match="needs tools, but this call has none"):
        to_tool_choice(None, required=True, tools=())


def test_a_tool_without_json_schema_is_named() -> None:
    class Meta(ToolMetadata):
        def get_parameters_dict(self) -> dict[str, Any]:
            raise TypeError("no JSON form")

    tool = FunctionTool(fn=add, metadata=Meta(name="bad", description=""))
    with pytest.raises(SchemaError, match="tool 'bad': its arguments have no JSON Schema"):
        to_tool(tool)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"type": "function"}, "names no function"),
        ({"name": "f", "parameters": [1]}, "tool 'f': parameters is a list"),
    ],
)
def test_a_spec_that_is_none_is_refused(spec: dict[str, Any], error: str) -> None:
    with pytest.raises(SchemaError, match=error):
        to_tool(spec)


def test_a_value_that_is_no_tool_is_refused() -> None:
    with pytest.raises(RequestError, match="'int' is not a tool"):
        to_tool(3)


def test_selections_are_the_whole_calls_in_order() -> None:
    blocks = [
        ToolCallBlock(tool_call_id="1", tool_name="f", tool_kwargs={"x": 1}),
        ToolCallBlock(tool_call_id="2", tool_name="g", tool_kwargs='{"y": 2}'),
        ToolCallBlock(tool_call_id="3", tool_name="h", tool_kwargs="{"),
    ]
    selections = tool_selections(ChatMessage(role="assistant", blocks=blocks))
    assert [(s.tool_id, s.tool_name, s.tool_kwargs) for s in selections] == [
        ("1", "f", {"x": 1}),
        ("2", "g", {"y": 2}),
    ]

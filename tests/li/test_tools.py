"""Tools and selections."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.tools import FunctionTool, ToolMetadata

from cachefriendly.errors import RequestError, SchemaError
from cachefriendly.messages import Tool
from cachefriendly_li.tools import (
    tool_from_llama_index,
    tool_selections,
    tool_spec,
    tools_from_llama_index,
)


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


ADD = FunctionTool.from_defaults(add)
WEATHER = Tool("weather", "Weather of a city.", {"type": "object", "properties": {}})


def test_a_function_tool_becomes_a_tool() -> None:
    tool = tool_from_llama_index(ADD)
    assert tool.name == "add"
    assert "Add two numbers." in tool.description
    assert tool.parameters["required"] == ["a"]
    assert list(tool.parameters["properties"]) == ["a", "b"]


def test_a_spec_and_the_tool_it_came_from_are_the_same() -> None:
    assert tool_from_llama_index(tool_spec(ADD)) == tool_from_llama_index(ADD)
    assert tool_from_llama_index(tool_spec(ADD)["function"]) == tool_from_llama_index(ADD)
    assert tool_from_llama_index(WEATHER) is WEATHER


def test_the_given_order_stays() -> None:
    assert [tool.name for tool in tools_from_llama_index([WEATHER, ADD])] == ["weather", "add"]


def test_a_tool_without_json_schema_is_named() -> None:
    class Meta(ToolMetadata):
        def get_parameters_dict(self) -> dict[str, Any]:
            raise TypeError("no JSON form")

    tool = FunctionTool(fn=add, metadata=Meta(name="bad", description=""))
    with pytest.raises(SchemaError, match="tool 'bad': its arguments have no JSON Schema"):
        tool_from_llama_index(tool)


def test_a_value_that_is_no_tool_is_refused() -> None:
    with pytest.raises(RequestError, match="'int' is not a tool"):
        tool_from_llama_index(3)


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

"""LlamaIndex tools and tool selections to the engine's values and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import BaseTool

from cachefriendly.errors import RequestError, SchemaError
from cachefriendly.messages import Tool
from cachefriendly.openai_forms import tool_from_openai, tool_to_openai
from cachefriendly_li.convert import message_from_llama_index

__all__ = ["tool_from_llama_index", "tool_selections", "tool_spec", "tools_from_llama_index"]


def tool_spec(tool: Any) -> dict[str, Any]:
    """A tool as plain JSON in the OpenAI form: what travels through LlamaIndex's events."""
    return tool_to_openai(tool_from_llama_index(tool))


def tools_from_llama_index(tools: Iterable[Any] | None) -> tuple[Tool, ...]:
    """Convert tools, in the given order."""
    return tuple(tool_from_llama_index(tool) for tool in tools or ())


def tool_from_llama_index(tool: Any) -> Tool:
    """Convert a `BaseTool`, an OpenAI function spec or a `Tool`.

    Raises:
        SchemaError: the tool has no name, or its arguments cannot be written as JSON Schema.
        RequestError: the value is no tool.
    """
    if isinstance(tool, Tool):
        return tool
    if isinstance(tool, BaseTool):
        return _from_base_tool(tool)
    if isinstance(tool, Mapping):
        return tool_from_openai(tool)
    raise RequestError(
        f"{type(tool).__name__!r} is not a tool; pass FunctionTool.from_defaults(fn=...) or a "
        "function spec with name, description and parameters"
    )


def tool_selections(message: ChatMessage) -> list[ToolSelection]:
    """The whole calls of a reply, in the order the model made them."""
    return [
        ToolSelection(tool_id=call.id, tool_name=call.name, tool_kwargs=dict(call.arguments))
        for call in message_from_llama_index(message).tool_calls
    ]


def _from_base_tool(tool: BaseTool) -> Tool:
    metadata = tool.metadata
    if not metadata.name:
        raise SchemaError("a tool has no name; set ToolMetadata(name=...)")
    try:
        parameters = metadata.get_parameters_dict()
    except Exception as error:  # pydantic has many ways to say that a type has no JSON form
        raise SchemaError(
            f"tool {metadata.name!r}: its arguments have no JSON Schema: {error}"
        ) from error
    return Tool(metadata.name, metadata.description or "", parameters)

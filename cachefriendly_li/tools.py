"""LlamaIndex tools, tool choices and tool selections to the engine's values and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import BaseTool

from cachefriendly.errors import RequestError, SchemaError
from cachefriendly.messages import Tool, ToolChoice
from cachefriendly_li.convert import to_message

__all__ = ["to_tool", "to_tool_choice", "to_tools", "tool_selections", "tool_spec"]

_WORDS: Final[Mapping[str, ToolChoice]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
    "any": "required",
}


def tool_spec(tool: Any) -> dict[str, Any]:
    """A tool as plain JSON in the OpenAI form: what travels through LlamaIndex's events."""
    value = to_tool(tool)
    return {
        "type": "function",
        "function": {
            "name": value.name,
            "description": value.description,
            "parameters": dict(value.parameters),
        },
    }


def to_tools(tools: Iterable[Any] | None) -> tuple[Tool, ...]:
    """Convert tools, in the given order."""
    return tuple(to_tool(tool) for tool in tools or ())


def to_tool(tool: Any) -> Tool:
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
        return _from_spec(tool)
    raise RequestError(
        f"{type(tool).__name__!r} is not a tool; pass FunctionTool.from_defaults(fn=...) or a "
        "function spec with name, description and parameters"
    )


def to_tool_choice(choice: Any, *, required: bool, tools: Sequence[Tool]) -> ToolChoice:
    """Convert what LlamaIndex passes: None, a word, a tool's name, or the OpenAI dict.

    Raises:
        RequestError: the name is no tool of this call, or there are no tools to require one of.
    """
    if choice is None:
        choice = "required" if required else "auto"
    name = _chosen_name(choice)
    names = [tool.name for tool in tools]
    if name in names:
        return ("name", name)
    if name not in _WORDS:
        known = ", ".join([*_WORDS, *names])
        raise RequestError(f"tool_choice={choice!r} is unknown; use one of {known}")
    word = _WORDS[name]
    if word == "required" and not tools:
        raise RequestError(f"tool_choice={choice!r} needs tools, but this call has none")
    return word


def tool_selections(message: ChatMessage) -> list[ToolSelection]:
    """The whole calls of a reply, in the order the model made them."""
    return [
        ToolSelection(tool_id=call.id, tool_name=call.name, tool_kwargs=dict(call.arguments))
        for call in to_message(message).tool_calls
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


def _from_spec(spec: Mapping[str, Any]) -> Tool:
    function = spec.get("function", spec)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        raise SchemaError(f"a tool spec with the keys {sorted(map(str, spec))} names no function")
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping):
        kind = type(parameters).__name__
        raise SchemaError(f"tool {name!r}: parameters is a {kind}, not a JSON Schema object")
    return Tool(name, str(function.get("description") or ""), parameters)


def _chosen_name(choice: Any) -> str:
    if isinstance(choice, str):
        return choice
    if isinstance(choice, Mapping):
        function = choice.get("function", choice)
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(name, str):
            return name
    raise RequestError(f"tool_choice={choice!r} is not usable; pass a tool's name or 'required'")

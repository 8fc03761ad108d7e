"""Tools and tool choices in the OpenAI form: plain JSON that every framework passes around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cachefriendly.errors import RequestError, SchemaError
from cachefriendly.messages import Tool, ToolChoice

__all__ = ["parse_tool_choice", "tool_choice_to_openai", "tool_from_openai", "tool_to_openai"]

_WORDS: Final[Mapping[str, ToolChoice]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
    "any": "required",
}


def tool_to_openai(tool: Tool) -> dict[str, Any]:
    """``{"type": "function", "function": {"name": ..., "description": ..., "parameters": ...}}``"""
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
        },
    }


def tool_from_openai(spec: Mapping[str, Any]) -> Tool:
    """The inverse of `tool_to_openai`; also takes the inner mapping alone.

    Raises:
        SchemaError: the spec names no function, or its parameters are no JSON object.
    """
    function = spec.get("function", spec)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        raise SchemaError(f"a tool spec with the keys {sorted(map(str, spec))} names no function")
    parameters = function.get("parameters")
    if parameters is None:
        parameters = {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping):
        kind = type(parameters).__name__
        raise SchemaError(f"tool {name!r}: parameters is a {kind}, not a JSON Schema object")
    return Tool(name, str(function.get("description") or ""), parameters)


def parse_tool_choice(value: Any, names: Sequence[str]) -> ToolChoice:
    """Every spelling of a tool choice; ``names`` are the tools of the call.

    None and False leave it to the model, True requires a call. A word wins over a tool of that
    name; the OpenAI form chooses such a tool.

    Raises:
        RequestError: it names no tool, or requires one where there is none.
    """
    if value is None or isinstance(value, bool):
        choice: ToolChoice | None = "required" if value else "auto"
    elif isinstance(value, str):
        choice = _WORDS.get(value, ("name", value))
    else:
        choice = _from_mapping(value)
    if choice == "required" and not names:
        raise RequestError(f"tool_choice={value!r} needs tools, but this call has none")
    if choice is None or (isinstance(choice, tuple) and choice[1] not in names):
        raise RequestError(
            f"tool_choice={value!r} is unknown; use 'auto', 'none', 'required', or a tool's name; "
            f"the tools are: {', '.join(names) or 'none'}"
        )
    return choice


def tool_choice_to_openai(choice: ToolChoice) -> str | dict[str, Any]:
    """The form in which a bound choice travels; `parse_tool_choice` reads it back."""
    if isinstance(choice, tuple):
        return {"type": "function", "function": {"name": choice[1]}}
    return choice


def _from_mapping(value: Any) -> ToolChoice | None:
    """``{"type": "function", "function": {"name": ...}}``, ``{"name": ...}``, ``{"type": word}``"""
    if not isinstance(value, Mapping):
        return None
    function = value.get("function", value)
    name = function.get("name") if isinstance(function, Mapping) else None
    if isinstance(name, str):
        return ("name", name)
    kind = value.get("type")
    return _WORDS.get(kind) if isinstance(kind, str) else None

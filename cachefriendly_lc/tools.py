"""LangChain's ways to say tool, tool choice and response format, in the engine's values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool

from cachefriendly.errors import RequestError, SchemaError
from cachefriendly.messages import Tool, ToolChoice

__all__ = [
    "ToolLike",
    "choice_from_langchain",
    "choice_to_openai",
    "openai_tools",
    "response_schema",
    "schema_format",
    "tools_from_openai",
]

ToolLike: TypeAlias = Mapping[str, Any] | type | Callable[..., Any] | BaseTool
_WORDS: Mapping[str, ToolChoice] = {
    "auto": "auto",
    "none": "none",
    "any": "required",
    "required": "required",
}
_ANY_JSON_OBJECT: Mapping[str, Any] = {"type": "object"}


def openai_tools(tools: Sequence[ToolLike], *, strict: bool | None = None) -> list[dict[str, Any]]:
    """Every tool as an OpenAI tool, in the given order; `SchemaError` names one that cannot be."""
    return [_openai_tool(tool, index, strict) for index, tool in enumerate(tools)]


def _openai_tool(tool: ToolLike, index: int, strict: bool | None) -> dict[str, Any]:
    try:
        converted = convert_to_openai_tool(tool, strict=strict)
    except Exception as error:  # pydantic, typing and inspect errors, depending on the tool
        raise SchemaError(
            f"tool {index} ({_tool_label(tool)}): cannot be turned into a JSON Schema: {error}"
        ) from error
    function = converted.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise SchemaError(
            f"tool {index} ({_tool_label(tool)}) is no function tool; give a function, a BaseTool, "
            'a pydantic class or {"type": "function", "function": {"name": ..., "parameters": ...}}'
        )
    return converted


def _tool_label(tool: ToolLike) -> str:
    if isinstance(tool, Mapping):
        return repr(tool.get("name") or tool.get("title") or tool.get("type"))
    return repr(getattr(tool, "name", None) or getattr(tool, "__name__", type(tool).__name__))


def tools_from_openai(tools: Sequence[Mapping[str, Any]]) -> tuple[Tool, ...]:
    """OpenAI tools as `Tool` values; two tools of one name are refused."""
    converted = tuple(_tool(tool["function"]) for tool in tools)
    names = [tool.name for tool in converted]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise RequestError(f"two tools are called {doubled[0]!r}; give each its own name")
    return converted


def _tool(function: Mapping[str, Any]) -> Tool:
    name = function["name"]
    parameters = function.get("parameters", {"type": "object", "properties": {}})
    if not isinstance(parameters, Mapping):
        raise SchemaError(
            f"tool {name!r}: parameters are {type(parameters).__name__}, not a JSON Schema object"
        )
    return Tool(name, function.get("description") or "", parameters)


def choice_from_langchain(choice: Any, names: Sequence[str]) -> ToolChoice:
    """All spellings of ``tool_choice``; a name that no tool has is refused."""
    wanted = _spelling(choice)
    if wanted == "required" and not names:
        raise RequestError(f"tool_choice={choice!r} without tools; bind at least one tool")
    if isinstance(wanted, tuple) and wanted[1] not in names:
        raise RequestError(
            f"tool_choice={wanted[1]!r}, but no tool has that name; bound tools: "
            f"{', '.join(names) or 'none'}"
        )
    return wanted


def _spelling(choice: Any) -> ToolChoice:
    if choice is None or isinstance(choice, bool):
        return "required" if choice else "auto"
    if isinstance(choice, str):
        return _WORDS.get(choice, ("name", choice))
    if isinstance(choice, Mapping):
        function = choice.get("function", choice)
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(name, str):
            return ("name", name)
        if choice.get("type") in _WORDS:
            return _WORDS[choice["type"]]
    raise RequestError(
        f"tool_choice={choice!r} is unknown; use 'auto', 'none', 'any', a tool's name or "
        '{"type": "function", "function": {"name": ...}}'
    )


def choice_to_openai(choice: ToolChoice) -> str | dict[str, Any]:
    """The form in which a bound choice travels: plain JSON."""
    if isinstance(choice, tuple):
        return {"type": "function", "function": {"name": choice[1]}}
    return choice


def schema_format(schema: Any, *, strict: bool | None = None) -> dict[str, Any]:
    """A pydantic class, TypedDict or JSON Schema as an OpenAI ``response_format``."""
    try:
        converted = convert_to_json_schema(schema, strict=strict)
    except Exception as error:  # whatever pydantic, typing or the converter raise
        raise SchemaError(f"structured output: not usable as JSON Schema: {error}") from error
    return {
        "type": "json_schema",
        "json_schema": {"name": converted.get("title", "answer"), "schema": converted},
    }


def response_schema(response_format: Any) -> Mapping[str, Any] | None:
    """The JSON Schema that ``response_format`` asks for; None when it asks for text.

    Takes OpenAI's forms (``text``, ``json_object``, ``json_schema``) and schema classes.
    """
    if response_format is None:
        return None
    if isinstance(response_format, type):
        response_format = schema_format(response_format)
    kind = response_format.get("type") if isinstance(response_format, Mapping) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return _ANY_JSON_OBJECT
    wrapped = response_format.get("json_schema") if kind == "json_schema" else None
    schema = wrapped.get("schema") if isinstance(wrapped, Mapping) else None
    if not isinstance(schema, Mapping):
        raise SchemaError(
            f"response_format={response_format!r} is unknown; use "
            '{"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}}, '
            '{"type": "json_object"} or with_structured_output(schema)'
        )
    return schema

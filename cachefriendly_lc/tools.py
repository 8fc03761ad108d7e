"""LangChain's ways to say tool and response format, as plain JSON."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool

from cachefriendly.errors import SchemaError

__all__ = [
    "ToolLike",
    "openai_tools",
    "response_schema",
    "schema_format",
]

ToolLike: TypeAlias = Mapping[str, Any] | type | Callable[..., Any] | BaseTool
_ANY_JSON_OBJECT: Mapping[str, Any] = {"type": "object"}


def openai_tools(tools: Sequence[ToolLike], *, strict: bool | None = None) -> list[dict[str, Any]]:
    """Every tool as an OpenAI tool, in the given order; `SchemaError` names one that cannot be."""
    return [_openai_tool(tool, index, strict) for index, tool in enumerate(tools)]


def _openai_tool(tool: ToolLike, index: int, strict: bool | None) -> dict[str, Any]:
    _refuse_enum(tool, f"tool {index}")
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


def _refuse_enum(schema: Any, what: str) -> None:
    """LangChain takes one for a function without parameters: any answer would do."""
    if isinstance(schema, type) and issubclass(schema, enum.Enum):
        raise SchemaError(
            f"{what}: {schema.__name__} is an Enum, no object; give a class with a field of it"
        )


def schema_format(schema: Any, *, strict: bool | None = None) -> dict[str, Any]:
    """A pydantic class, TypedDict or JSON Schema as an OpenAI ``response_format``."""
    _refuse_enum(schema, "structured output")
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

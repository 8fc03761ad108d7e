"""Tools in one canonical spelling, so that equal tools give equal text in every process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cachefriendly.messages import Tool

__all__ = ["canonical_tools"]

# The order in which JSON Schema is usually written; other keys follow in alphabetical order.
_CONVENTION = ("$schema", "$id", "$ref", "title", "type", "description", "enum", "const", "default",
               "format", "properties", "required", "items", "additionalProperties")  # fmt: skip
_RANK = {key: rank for rank, key in enumerate(_CONVENTION)}


def canonical_tools(tools: Sequence[Tool]) -> tuple[Tool, ...]:
    """Tools by name, schema keys in a fixed order: a set or a jsonb column costs no ids."""
    ordered = sorted(tools, key=lambda tool: tool.name)
    return tuple(Tool(t.name, t.description, _canonical(t.parameters)) for t in ordered)


def _canonical(value: Any, *, names: bool = False) -> Any:
    """``names``: the keys of this mapping are names the user chose, not JSON Schema words."""
    if isinstance(value, Mapping):
        keys = sorted(value) if names else sorted(value, key=_schema_order)
        inner = ("properties", "$defs", "definitions", "patternProperties")
        return {key: _canonical(value[key], names=not names and key in inner) for key in keys}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    return value


def _schema_order(key: str) -> tuple[int, str]:
    return _RANK.get(key, len(_RANK)), key

"""Rewrite a checked JSON Schema into the one that is enforced: narrower, never wider."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cachefriendly.tools.patterns import whole_text
from cachefriendly.tools.schema import LISTED_SCHEMAS, NAMED_SCHEMAS, SINGLE_SCHEMAS, subschemas

__all__ = ["grammar_schema"]

# Formats that llguidance enforces. The standard makes any other one an annotation.
_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
)
_OPEN = (
    "additionalProperties", "patternProperties", "unevaluatedProperties",
    "allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas",
)  # fmt: skip
_SET_OPERATIONS = re.compile(r"&&|--|~~|\[[^\]]*\[")
_COMBINERS = ("allOf", "anyOf", "oneOf")


def grammar_schema(schema: Mapping[str, Any], *, close_root: bool = False) -> dict[str, Any]:
    """The schema to enforce.

    Objects that list properties and say nothing about others are closed, so that a model does not
    invent any; not where several schemas must hold together, for there one closed part would
    forbid the properties of another. ``close_root`` closes the root also when it lists none.
    """
    return _rewrite(
        schema, closing=True, close_definitions=not _intersects(schema), close_empty=close_root
    )


def _rewrite(
    schema: Mapping[str, Any], *, closing: bool, close_definitions: bool, close_empty: bool = False
) -> dict[str, Any]:
    def inner(value: Any, closing: bool) -> Any:
        if not isinstance(value, Mapping):
            return value
        return _rewrite(value, closing=closing, close_definitions=close_definitions)

    closes_parts = closing and not _combines(schema)
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in NAMED_SCHEMAS:
            close = close_definitions if key in ("$defs", "definitions") else True
            out[key] = {name: inner(part, close) for name, part in value.items()}
        elif key in LISTED_SCHEMAS or (key == "items" and isinstance(value, list | tuple)):
            close = closes_parts if key in _COMBINERS else True
            out[key] = [inner(part, close) for part in value]
        elif key in SINGLE_SCHEMAS:
            out[key] = inner(value, key in ("items", "additionalProperties"))
        elif key == "pattern":
            out[key] = _plain_sets(value)
        elif not (key == "x-guidance" or (key == "format" and value not in _FORMATS)):
            out[key] = value
    lists_properties = bool(schema.get("properties")) or close_empty
    if closing and lists_properties and not any(key in schema for key in _OPEN):
        out["additionalProperties"] = False
    return out


def _plain_sets(pattern: str) -> str:
    """The same pattern where llguidance would read operations on sets, which no schema means."""
    if not _SET_OPERATIONS.search(pattern):
        return pattern
    try:
        return f"^(?:{whole_text(pattern)})$"
    except ValueError:
        return pattern


def _combines(schema: Mapping[str, Any]) -> bool:
    """Whether several schemas must hold for the same value here."""
    parts = sum(key in schema for key in (*_COMBINERS, "$ref", "properties"))
    return parts > 1 or len(schema.get("allOf", ())) > 1


def _intersects(schema: Any) -> bool:
    """Whether that happens anywhere inside."""
    if not isinstance(schema, Mapping):
        return False
    return _combines(schema) or any(_intersects(part) for _, part in subschemas(schema))

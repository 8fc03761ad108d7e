"""Which keywords of JSON Schema limit values of which type, for rules that must follow them all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cachefriendly.errors import SchemaError
from cachefriendly.tools.schema import TYPES, referenced

__all__ = ["COMBINING", "ENUMERATING", "implied_types", "limits", "schema_leaves", "schema_parts"]

COMBINING = (
    "$ref", "$dynamicRef", "$recursiveRef", "anyOf", "oneOf", "allOf", "not", "if",
)  # fmt: skip
ENUMERATING = ("enum", "const")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_OF_TYPE: dict[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": _NUMBERS,
    "integer": _NUMBERS,
    "array": (
        "items", "additionalItems", "prefixItems", "contains", "minContains", "maxContains",
        "minItems", "maxItems", "uniqueItems", "unevaluatedItems",
    ),
    "object": (
        "properties", "patternProperties", "additionalProperties", "propertyNames", "required",
        "minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies",
        "unevaluatedProperties",
    ),
}  # fmt: skip
_DEEPEST = 20


def limits(schema: Mapping[str, Any], kind: str) -> list[str]:
    """The keywords of a schema that limit values of one JSON type, whatever else it says."""
    return [key for key in _OF_TYPE.get(kind, ()) if key in schema]


def implied_types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The JSON types that a schema without combining keywords means.

    Where it names none, those that it limits: narrower than the standard, which lets any other
    value pass. Where it limits none, all.
    """
    named = schema.get("type")
    if named is not None:
        return (named,) if isinstance(named, str) else tuple(named)
    return tuple(kind for kind in TYPES if limits(schema, kind)) or TYPES


def schema_leaves(
    schema: Any, root: Mapping[str, Any], *, what: str, depth: int = 0
) -> Iterator[Mapping[str, Any]]:
    """The schemas without combining keywords of which a value must fulfil one.

    Raises:
        SchemaError: ``what`` combines schemas in a way that alternatives cannot express.
    """
    parts = schema_parts(schema, root, what=what) if depth < _DEEPEST else ()
    if parts is None:
        yield schema if isinstance(schema, Mapping) else {}
        return
    for part in parts:
        yield from schema_leaves(part, root, what=what, depth=depth + 1)


def schema_parts(schema: Any, root: Mapping[str, Any], *, what: str) -> Sequence[Any] | None:
    """The schemas of which a value must fulfil one; None where nothing is combined.

    Raises:
        SchemaError: ``what`` combines schemas in a way that alternatives cannot express.
    """
    if not isinstance(schema, Mapping):
        return () if schema is False else None
    found = [key for key in (*COMBINING, *ENUMERATING) if key in schema]
    said = {"type", *(key for kind in TYPES for key in limits(schema, kind))}.intersection(schema)
    if not found or (len(found) == 1 and found[0] in ENUMERATING and said <= {"type"}):
        return None
    parts = _parts(found[0], schema, root)
    beside = [*found[1:], *sorted(said)]
    if parts is None or beside:
        raise SchemaError(
            f"{what}: {found[0]}{f' beside {beside[0]}' if beside else ''} cannot be enforced in "
            "this model's form of calls; simplify the schema, or leave the choice of the tool to "
            "the model"
        )
    return parts


def _parts(key: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Sequence[Any] | None:
    """The alternatives that a combining keyword makes; None where it makes none."""
    if key == "$ref":
        return [referenced(schema[key], root)]
    several = key in ("anyOf", "oneOf") or (key == "allOf" and len(schema[key]) == 1)
    return list(schema[key]) if several else None

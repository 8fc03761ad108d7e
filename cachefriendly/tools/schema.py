"""Check that a schema is JSON Schema (draft 2020-12), with errors that say what and where."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cachefriendly.errors import RequestError, SchemaError
from cachefriendly.messages import Tool

__all__ = ["TYPES", "check_schema", "check_tools", "referenced", "subschemas"]

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTED_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE_SCHEMAS = (
    "items", "additionalItems", "additionalProperties", "contains", "propertyNames", "not",
    "if", "then", "else", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_DEEPEST = 100


def check_tools(tools: Sequence[Tool]) -> None:
    """Refuse tools that no model can be offered.

    Raises:
        RequestError: a name is empty or used twice.
        SchemaError: parameters are not JSON Schema, or do not describe an object.
    """
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        if not isinstance(tool.name, str) or not tool.name:
            raise RequestError(f"tool {index}: name={tool.name!r} must be a non-empty string")
        if not isinstance(tool.description, str):
            raise RequestError(f"tool {tool.name!r}: description must be a string, '' for none")
        if tool.name in seen:
            raise RequestError(f"two tools are named {tool.name!r}; give each its own name")
        seen.add(tool.name)
        check_schema(tool.parameters, what=f"tool {tool.name!r}")
        kind = tool.parameters.get("type", "object")
        if kind != "object":
            raise SchemaError(
                f"tool {tool.name!r}: parameters describe {kind!r}, but arguments are an object; "
                'use {"type": "object", "properties": {...}}'
            )


def check_schema(schema: Mapping[str, Any], *, what: str) -> None:
    """Refuse what is not JSON Schema; ``what`` names its owner in the error.

    Unknown keywords are allowed, as the standard says. References must lie inside the schema:
    nothing is ever fetched.

    Raises:
        SchemaError: names the owner, the place and the reason.
    """
    if not isinstance(schema, Mapping):
        raise SchemaError(
            f"{what}: a schema must be a JSON object, not {type(schema).__name__}; "
            'for no parameters use {"type": "object", "properties": {}}'
        )
    try:
        json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"{what}: the schema is not plain JSON: {error}") from None
    _check(schema, schema, "$", what, 0)


def subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The schemas directly inside ``schema``, each with its path from there."""
    for key in NAMED_SCHEMAS:
        for name, inner in _as_mapping(schema.get(key)).items():
            yield f"{key}.{name}", inner
    for key in (*LISTED_SCHEMAS, "items"):
        value = schema.get(key)
        if isinstance(value, list | tuple):
            for index, inner in enumerate(value):
                yield f"{key}[{index}]", inner
    for key in SINGLE_SCHEMAS:
        if key in schema and not (key == "items" and isinstance(schema[key], list | tuple)):
            yield key, schema[key]


def _check(schema: Any, root: Mapping[str, Any], path: str, what: str, depth: int) -> None:
    if isinstance(schema, bool):
        return
    place = f"{what}: schema at {path}"
    if not isinstance(schema, Mapping):
        raise SchemaError(f"{place} must be an object or a bool, not {schema!r}")
    if depth > _DEEPEST:
        raise SchemaError(f"{what}: the schema is nested more than {_DEEPEST} deep; use $ref")
    for key, value in schema.items():
        if not isinstance(key, str):
            raise SchemaError(f"{place}: keyword {key!r} must be a string")
        rule = _RULES.get(key)
        problem = rule(value) if rule else None
        if problem:
            raise SchemaError(f"{place}: {key}={value!r} {problem}")
    if "$ref" in schema and not _resolves(schema["$ref"], root):
        raise SchemaError(
            f"{place}: $ref={schema['$ref']!r} leads nowhere inside this schema; "
            "put the definition under $defs"
        )
    for where, inner in subschemas(schema):
        _check(inner, root, f"{path}.{where}", what, depth + 1)


def referenced(reference: str, root: Mapping[str, Any]) -> Any:
    """The part of ``root`` that a reference names.

    Raises:
        KeyError: it names none, or none inside ``root``.
    """
    start, *parts = reference.split("/")
    target: Any = root
    if start != "#":
        raise KeyError(reference)
    for part in parts:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list | tuple) and key.isdigit() and int(key) < len(target):
            target = target[int(key)]
        elif isinstance(target, Mapping) and key in target:
            target = target[key]
        else:
            raise KeyError(reference)
    return target


def _resolves(reference: str, root: Mapping[str, Any]) -> bool:
    try:
        referenced(reference, root)
    except KeyError:
        return False
    return True


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _type(value: Any) -> str | None:
    named = value if isinstance(value, list | tuple) else [value]
    good = bool(named) and all(isinstance(name, str) and name in TYPES for name in named)
    return None if good else f"is unknown; use one of {', '.join(TYPES)}"


def _count(value: Any) -> str | None:
    good = _is_number(value) and value >= 0 and int(value) == value
    return None if good else "must be an integer of at least 0"


def _number(value: Any) -> str | None:
    return None if _is_number(value) else "must be a number"


def _step(value: Any) -> str | None:
    return None if _is_number(value) and value > 0 else "must be a number above 0"


def _text(value: Any) -> str | None:
    return None if isinstance(value, str) else "must be a string"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _names(value: Any) -> str | None:
    good = isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
    good = good and len(set(value)) == len(value)
    return None if good else "must be a list of different strings"


def _some(value: Any) -> str | None:
    good = isinstance(value, list | tuple) and len(value) > 0
    return None if good else "must be a list with at least one entry"


def _named(value: Any) -> str | None:
    good = isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
    return None if good else "must be an object of schemas"


_RULES: dict[str, Callable[[Any], str | None]] = {
    "type": _type,
    "required": _names,
    "enum": _some,
    "multipleOf": _step,
    "uniqueItems": _flag,
    **dict.fromkeys(NAMED_SCHEMAS, _named),
    **dict.fromkeys(LISTED_SCHEMAS, _some),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _count),
    **dict.fromkeys(("minProperties", "maxProperties", "minContains", "maxContains"), _count),
    **dict.fromkeys(("$ref", "$id", "$schema", "$anchor", "$comment"), _text),
    **dict.fromkeys(("title", "description", "pattern", "format"), _text),
}

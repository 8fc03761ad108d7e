"""Give a value that stands as bare text the type that its tool's schema says.

Text carries no type, so the schema of the argument decides. In this order:

1. Where the schema admits nothing but text, the value is the text as it stands: ``12`` for a
   string is ``"12"``.
2. Otherwise text that is JSON (or a Python literal: ``True``, ``None``, ``{'x': 1}``) of a type
   that the schema admits is that value. So ``12`` for ``anyOf: [string, integer]`` is the number,
   whichever is listed first, and ``null`` for an optional string is none: a model has no way to say
   such a text.
3. Text that is neither, or of no type that the schema admits, is text: ``seven`` for an integer
   stays ``"seven"``, for the tool's own check says more about it than a parser could.
4. JSON text in quotes is unquoted only where the schema admits no text.

A schema that says no type admits every type, and so does one alternative of ``anyOf`` that says
none; parts of ``allOf`` must agree. ``1.0`` is an integer as far as types go, and stays a float.
"""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cachefriendly.messages import too_deep
from cachefriendly.tools.call_json import BrokenCall, read_json
from cachefriendly.tools.schema import referenced

__all__ = ["allowed_types", "argument_schema", "has_type", "is_text", "json_type", "typed_value"]

_PYTHON = {"True": True, "False": False, "None": None}
_KINDS = {"boolean": bool, "object": dict, "array": list, "string": str, "null": type(None)}
_DEEPEST = 20


def typed_value(text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    """The value that ``text`` stands for, by ``schema`` inside ``root``; see the module."""
    types = allowed_types(schema, root)
    if types == {"string"}:
        return text
    value = _literal(text.strip())
    if isinstance(value, str) or (types and not has_type(value, types)):
        return value if types and "string" not in types and isinstance(value, str) else text
    return value


def argument_schema(parameters: Mapping[str, Any], key: str) -> Any:
    """The schema of one argument of a tool, wherever its parameters list it; None for none.

    An argument that is listed nowhere has the schema of the additional ones.
    """
    found = list(_listed(parameters, parameters, key, 0))
    if len(found) > 1:
        return {"anyOf": found}
    others = parameters.get("additionalProperties")
    return found[0] if found else others if isinstance(others, Mapping) else None


def _listed(schema: Any, root: Mapping[str, Any], key: str, depth: int) -> Iterator[Any]:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return
    if key in schema.get("properties", {}):
        yield schema["properties"][key]
    for part in (*_choices(schema), *_demands(schema, root)):
        yield from _listed(part, root, key, depth + 1)


def is_text(schema: Any, root: Mapping[str, Any]) -> bool:
    """Whether every value of a schema is text."""
    return allowed_types(schema, root) == {"string"}


def allowed_types(schema: Any, root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """The JSON types a schema may admit; empty when it does not say."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return frozenset()
    named = schema.get("type")
    if named is not None:
        return frozenset([named] if isinstance(named, str) else named)
    if "enum" in schema or "const" in schema:
        return frozenset(map(json_type, [*schema.get("enum", ()), *_present(schema, "const")]))
    said = [allowed_types(part, root, depth + 1) for part in _demands(schema, root)]
    for key in ("anyOf", "oneOf"):
        ways = [allowed_types(part, root, depth + 1) for part in schema.get(key, ())]
        said.append(frozenset().union(*ways) if all(ways) else frozenset())
    return functools.reduce(_common, filter(None, said), frozenset())


def _common(left: frozenset[str], right: frozenset[str]) -> frozenset[str]:
    """The types that two schemas admit together; an empty one does not say."""
    if not left:
        return right
    both = set(left & right)
    if "integer" in left | right and "number" in left | right:
        both.add("integer")
    return frozenset(both) or left


def _choices(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Schemas of which one must hold."""
    for key in ("anyOf", "oneOf"):
        yield from schema.get(key, ())


def _demands(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Any]:
    """Schemas that must all hold."""
    yield from schema.get("allOf", ())
    if "$ref" in schema:
        try:
            yield referenced(schema["$ref"], root)
        except KeyError:
            return


def _present(schema: Mapping[str, Any], key: str) -> list[Any]:
    return [schema[key]] if key in schema else []


def json_type(value: Any) -> str:
    """The JSON type of a value; integers are numbers."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return next((name for name, kind in _KINDS.items() if isinstance(value, kind)), "string")


def has_type(value: Any, kinds: Iterable[str]) -> bool:
    """Whether a value is of one of the JSON types."""
    return any(_fits(value, kind) for kind in kinds)


def _fits(value: Any, kind: str) -> bool:
    if kind in ("number", "integer"):
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and (whole or kind == "number")
    return isinstance(value, _KINDS.get(kind, object))


def _literal(text: str) -> Any:
    """A JSON or Python value; the text itself when it is neither."""
    if text in _PYTHON:
        return _PYTHON[text]
    try:
        return read_json(text)
    except BrokenCall:
        pass
    if text[:1] not in ("{", "["):
        return text
    try:
        value = ast.literal_eval(text)
        json.dumps(value, allow_nan=False).encode("utf-8")
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return text
    return text if too_deep(value) else value

"""Give a value that stands as bare text the type that its tool's schema says."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from typing import Any

from cachefriendly.messages import too_deep
from cachefriendly.tools.call_json import BrokenCall, read_json

__all__ = ["allowed_types", "is_text", "text_schema", "typed_value"]

_PYTHON = {"True": True, "False": False, "None": None}
_KINDS = {"boolean": bool, "object": dict, "array": list, "string": str, "null": type(None)}
_DEEPEST = 20


def typed_value(text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    """The value that ``text`` stands for.

    Where the schema (inside ``root``) wants text, it is the text. Otherwise it is JSON, or a
    Python literal as some templates print them; where it is neither, the text again: the tool's
    own check tells the model more than a parser could.
    """
    types = allowed_types(schema, root)
    if types == {"string"}:
        return text
    value = _literal(text.strip())
    if isinstance(value, str) or (types and not any(_fits(value, kind) for kind in types)):
        return value if types and "string" not in types and isinstance(value, str) else text
    return value


def is_text(schema: Any, root: Mapping[str, Any]) -> bool:
    """Whether every value of a schema is text."""
    return allowed_types(schema, root) == {"string"}


def text_schema(schema: Any, root: Mapping[str, Any], depth: int = 0) -> Mapping[str, Any] | None:
    """The part of a schema that admits text, with its rules; None when it admits none."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return None
    if "type" in schema:
        named = schema["type"]
        return schema if named == "string" or "string" in named else None
    inner = (text_schema(part, root, depth + 1) for part in _alternatives(schema, root))
    return next((found for found in inner if found is not None), None)


def allowed_types(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """The JSON types a schema may admit; empty when it does not say."""
    return set(_types(schema, root, 0))


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> Iterator[str]:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return
    named = schema.get("type")
    if isinstance(named, str):
        yield named
    elif isinstance(named, list | tuple):
        yield from named
    elif "enum" in schema or "const" in schema:
        yield from map(_kind, [*schema.get("enum", ()), *_present(schema, "const")])
    else:
        for inner in _alternatives(schema, root):
            yield from _types(inner, root, depth + 1)


def _alternatives(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Any]:
    for key in ("anyOf", "oneOf", "allOf"):
        yield from schema.get(key, ())
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = root
        for part in reference[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            target = target.get(key) if isinstance(target, Mapping) else None
        yield target


def _present(schema: Mapping[str, Any], key: str) -> list[Any]:
    return [schema[key]] if key in schema else []


def _kind(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return next((name for name, kind in _KINDS.items() if isinstance(value, kind)), "string")


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

"""Read calls written as Python: ``name(key="value")``, one, several, or a list of them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from typing import Any

from cachefriendly.messages import ToolCall
from cachefriendly.tools.call_json import BrokenCall, read_json

__all__ = ["read_python_calls", "render_python_calls"]

# Escapes that Python does not know stand for themselves; the parser would warn about them.
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = frozenset("\n\\'\"abfnrtvxuUN01234567")
_JSON_NAMES = {"true": True, "false": False, "null": None}


def _rendered(call: ToolCall) -> str:
    """A call as Python source."""
    arguments = ", ".join(f"{key}={value!r}" for key, value in call.arguments.items())
    return f"{call.name}({arguments})"


def read_python_calls(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The calls in ``text``; values are literals, of Python or of JSON.

    A name in ``name.call(...)`` stands for ``name(...)``.

    Raises:
        BrokenCall: with the reason; nothing else is ever raised, whatever the text.
    """
    try:
        statements = ast.parse(_ESCAPE.sub(_kept, text.strip()), mode="exec").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BrokenCall(f"malformed call: {type(error).__name__}") from None
    expressions: list[ast.expr] = []
    for statement in statements:
        if not isinstance(statement, ast.Expr):
            raise BrokenCall("a tool call must be name(argument=value)")
        value = statement.value
        expressions += value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    if not expressions:
        raise BrokenCall("there is no call")
    return [_call(expression) for expression in expressions]


def _call(expression: ast.expr) -> tuple[str, dict[str, Any]]:
    if not isinstance(expression, ast.Call):
        raise BrokenCall("a tool call must be name(argument=value)")
    name = _dotted(expression.func).removesuffix(".call")
    if expression.args or any(keyword.arg is None for keyword in expression.keywords):
        raise BrokenCall("arguments must be given by name", name)
    values = {str(keyword.arg): _literal(keyword.value, name) for keyword in expression.keywords}
    return name, _plain(values, name)


def _dotted(value: ast.expr) -> str:
    """``a.b.c`` as text."""
    parts: list[str] = []
    while isinstance(value, ast.Attribute):
        parts.append(value.attr)
        value = value.value
    if not isinstance(value, ast.Name):
        raise BrokenCall("a tool call must be name(argument=value)")
    return ".".join([value.id, *reversed(parts)])


def _kept(escape: re.Match[str]) -> str:
    return escape.group() if escape[1] in _ESCAPES else "\\" + escape.group()


def _literal(value: ast.expr, name: str) -> Any:
    try:
        return _value(value)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise BrokenCall("the value of an argument is no literal", name) from None


def _value(value: ast.expr) -> Any:
    if isinstance(value, ast.Name):
        if value.id not in _JSON_NAMES:
            raise ValueError(value.id)
        return _JSON_NAMES[value.id]
    if isinstance(value, ast.List | ast.Tuple):
        return [_value(item) for item in value.elts]
    if isinstance(value, ast.Dict):
        if None in value.keys:
            raise ValueError("unpacking")
        keys = (key for key in value.keys if key is not None)
        return {_value(key): _value(item) for key, item in zip(keys, value.values, strict=True)}
    return ast.literal_eval(value)


def _plain(arguments: dict[Any, Any], name: str) -> dict[str, Any]:
    """The same as plain JSON data, checked like any other call's."""
    try:
        text = json.dumps(arguments, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise BrokenCall("the value of an argument is no JSON", name) from None
    plain: dict[str, Any] = read_json(text, name)
    return plain


def render_python_calls(calls: Sequence[ToolCall]) -> str:
    """Calls as a Python list."""
    return f"[{', '.join(map(_rendered, calls))}]"

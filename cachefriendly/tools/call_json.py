"""Read one tool call written as a JSON object: exact Python values, or a reason why not."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from cachefriendly.messages import too_deep

__all__ = ["BrokenCall", "as_arguments", "read_arguments", "read_call", "read_json", "written_id"]

_NAME_KEYS = ("name", "tool_name")
_ARGUMENT_KEYS = ("arguments", "parameters")
_ID_KEYS = ("id", "tool_call_id")
# Keys a model may write next to the name without meaning an argument.
_HARMLESS_KEYS = frozenset({*_NAME_KEYS, *_ID_KEYS, "type"})


class BrokenCall(ValueError):
    """Why the text is no call. ``name`` is the tool's name as far as it could be read."""

    def __init__(self, reason: str, name: str | None = None) -> None:
        super().__init__(reason)
        self.name = name


def read_call(text: str) -> tuple[str, dict[str, Any]]:
    """Name and arguments of the call in ``text``; arguments keep the order they were written in.

    ``parameters`` may stand in place of ``arguments`` (`as_arguments`). A call that carries nothing
    but a name has no arguments.

    Raises:
        BrokenCall: with the reason; nothing else is ever raised, whatever the text.
    """
    call = read_json(text)
    if not isinstance(call, dict):
        raise BrokenCall(f"a tool call must be a JSON object, not {_kind(call)}")
    name = next((call[key] for key in _NAME_KEYS if key in call), None)
    if not isinstance(name, str) or not name:
        raise BrokenCall('the call has no "name", or it is not a non-empty string')
    return name, _arguments(call, name)


def read_arguments(text: str, name: str) -> dict[str, Any]:
    """The arguments that stand alone behind the ``name`` of a call; no text, no arguments.

    Raises:
        BrokenCall: with the reason; nothing else is ever raised, whatever the text.
    """
    return as_arguments(read_json(text, name) if text.strip() else None, name)


def as_arguments(value: Any, name: str) -> dict[str, Any]:
    """The arguments that a value of JSON stands for in the call of ``name``.

    Models write an object, a JSON string of one, and for none also ``null`` or an empty string.

    Raises:
        BrokenCall: it is anything else.
    """
    if isinstance(value, str):
        value = read_json(value, name) if value.strip() else None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BrokenCall(f"the arguments must be a JSON object, not {_kind(value)}", name)
    return value


def written_id(text: str) -> str:
    """The id that a model wrote into the object of a call; "" when it wrote none."""
    try:
        call = read_json(text)
    except BrokenCall:
        return ""
    found = (call.get(key) for key in _ID_KEYS) if isinstance(call, dict) else ()
    return next((value for value in found if isinstance(value, str)), "")


def _arguments(call: Mapping[str, Any], name: str) -> dict[str, Any]:
    key = next((key for key in _ARGUMENT_KEYS if key in call), None)
    if key is None:
        others = sorted(set(call) - _HARMLESS_KEYS)
        if others:
            raise BrokenCall(f'the call has no "arguments"; found {", ".join(others)}', name)
        return {}
    return as_arguments(call[key], name)


def read_json(text: str, name: str | None = None) -> Any:
    """A JSON value as a model means it; ``name`` is the tool's, for the error.

    Raises:
        BrokenCall: with the reason; nothing else is ever raised, whatever the text.
    """
    try:
        # strict=False: models put raw newlines into strings, and what they mean is clear
        value = json.loads(
            text, strict=False, parse_constant=_refuse_constant, parse_float=_finite_float
        )
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise BrokenCall("a string holds half of a surrogate pair", name) from None
    except ValueError as error:
        raise BrokenCall(f"malformed JSON: {error}", name) from None
    except RecursionError:
        raise BrokenCall("malformed JSON: nested too deeply", name) from None
    if too_deep(value):
        raise BrokenCall("the JSON is nested too deeply", name)
    return value


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _finite_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text} is out of range")
    return value


def _kind(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, str):
        return "a string"
    return json.dumps(value)

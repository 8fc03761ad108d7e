"""Read one tool call written as a JSON object: exact Python values, or a reason why not."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from cachefriendly.messages import too_deep

__all__ = ["BrokenCall", "call_object", "read_call"]

_ARGUMENT_KEYS = ("arguments", "parameters")
# Keys a model may write next to the name without meaning an argument.
_HARMLESS_KEYS = frozenset({"name", "id", "type"})


class BrokenCall(ValueError):
    """Why the text is no call. ``name`` is the tool's name as far as it could be read."""

    def __init__(self, reason: str, name: str | None = None) -> None:
        super().__init__(reason)
        self.name = name


def call_object(name: str, arguments: Mapping[str, Any]) -> str:
    """The JSON object that stands for a call, spelled as models are trained to write it."""
    return json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)


def read_call(text: str) -> tuple[str, dict[str, Any]]:
    """Name and arguments of the call in ``text``; arguments keep the order they were written in.

    Arguments given as a JSON string of an object are read too, as is ``parameters`` in place of
    ``arguments``. A call that carries nothing but a name has no arguments.

    Raises:
        BrokenCall: with the reason; nothing else is ever raised, whatever the text.
    """
    call = _load(text, None)
    if not isinstance(call, dict):
        raise BrokenCall(f"a tool call must be a JSON object, not {_kind(call)}")
    name = call.get("name")
    if not isinstance(name, str) or not name:
        raise BrokenCall('the call has no "name", or it is not a non-empty string')
    return name, _arguments(call, name)


def _arguments(call: Mapping[str, Any], name: str) -> dict[str, Any]:
    key = next((key for key in _ARGUMENT_KEYS if key in call), None)
    if key is None:
        others = sorted(set(call) - _HARMLESS_KEYS)
        if others:
            raise BrokenCall(f'the call has no "arguments"; found {", ".join(others)}', name)
        return {}
    value = call[key]
    if isinstance(value, str):
        value = _load(value, name)
    if not isinstance(value, dict):
        raise BrokenCall(f'"{key}" must be a JSON object, not {_kind(value)}', name)
    return value


def _load(text: str, name: str | None) -> Any:
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

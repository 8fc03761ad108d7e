"""Messages to plain JSON values and back; unknown keys and wrong types are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cachefriendly.errors import RequestError
from cachefriendly.messages import ROLES, InvalidToolCall, Message, ToolCall

__all__ = [
    "dump_json",
    "message_from_dict",
    "message_to_dict",
    "parse_object",
    "refuse_rest",
    "take",
    "text_mapping",
]

_OPTIONAL_TEXT = ("tool_call_id", "name", "reasoning", "handle")


def message_to_dict(message: Message) -> dict[str, Any]:
    """The message as JSON values; empty fields are left out, argument order is kept."""
    out: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        out["tool_calls"] = [
            {"name": call.name, "arguments": dict(call.arguments), "id": call.id}
            for call in message.tool_calls
        ]
    if message.invalid_tool_calls:
        out["invalid_tool_calls"] = [
            {"raw": call.raw, "error": call.error, "name": call.name, "id": call.id}
            for call in message.invalid_tool_calls
        ]
    for key in _OPTIONAL_TEXT:
        if getattr(message, key) is not None:
            out[key] = getattr(message, key)
    if message.anchors:
        out["anchors"] = dict(message.anchors)
    return out


def message_from_dict(data: Mapping[str, Any]) -> Message:
    """Inverse of `message_to_dict`.

    Raises:
        RequestError: a key is unknown, a value has the wrong type, or the role is unknown.
    """
    rest = dict(data)
    role = take(rest, "role", str)
    if role not in ROLES:
        raise RequestError(f"message: unknown role {role!r}; use one of {', '.join(ROLES)}")
    content = take(rest, "content", str)
    calls = take(rest, "tool_calls", list, default=[])
    broken = take(rest, "invalid_tool_calls", list, default=[])
    texts = {key: take(rest, key, str, default=None) for key in _OPTIONAL_TEXT}
    anchors = text_mapping(take(rest, "anchors", dict, default={}), "anchors")
    refuse_rest(rest, "message")
    return Message(
        role=role,
        content=content,
        tool_calls=tuple(_call_from_dict(item) for item in calls),
        invalid_tool_calls=tuple(_invalid_from_dict(item) for item in broken),
        anchors=anchors,
        **texts,
    )


def text_mapping(data: Mapping[str, Any], what: str) -> dict[str, str]:
    """The mapping, if every value of it is text."""
    for key, value in data.items():
        if not isinstance(value, str):
            raise RequestError(f"{what}: {key!r} is {type(value).__name__}; it must be a str")
    return dict(data)


def _call_from_dict(data: Any) -> ToolCall:
    rest = _mapping(data, "tool call")
    call = ToolCall(
        name=take(rest, "name", str),
        arguments=take(rest, "arguments", dict),
        id=take(rest, "id", str, default=""),
    )
    refuse_rest(rest, "tool call")
    return call


def _invalid_from_dict(data: Any) -> InvalidToolCall:
    rest = _mapping(data, "invalid tool call")
    call = InvalidToolCall(
        raw=take(rest, "raw", str),
        error=take(rest, "error", str),
        name=take(rest, "name", str, default=None),
        id=take(rest, "id", str, default=""),
    )
    refuse_rest(rest, "invalid tool call")
    return call


def _mapping(data: Any, what: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise RequestError(f"{what}: expected a JSON object, got {type(data).__name__}")
    return dict(data)


_REQUIRED: Any = object()


def take(rest: dict[str, Any], key: str, kind: type, *, default: Any = _REQUIRED) -> Any:
    """Remove ``key`` from ``rest``, type checked; a missing or null value gives ``default``."""
    value = rest.pop(key, None)
    if value is None:
        if default is _REQUIRED:
            raise RequestError(f"{key!r} is missing; it must be a {kind.__name__}")
        return default
    # bool is a subclass of int, but a step count of True is a mistake.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise RequestError(f"{key!r} is {type(value).__name__}; it must be a {kind.__name__}")
    return value


def refuse_rest(rest: Mapping[str, Any], what: str) -> None:
    """Refuse keys that nobody took: they come from another version or another program."""
    if rest:
        raise RequestError(f"{what}: unknown key {min(rest)!r}; was it written by a newer version?")


def dump_json(value: Any, what: str) -> str:
    """Compact JSON that encodes as UTF-8. NaN and values JSON does not know are refused."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        # Lone surrogates (file names, cut emoji) exist in str but not in UTF-8: escape them.
        return text if _encodes(text) else json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{what} cannot be stored as JSON: {error}") from error


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_object(text: str, what: str) -> dict[str, Any]:
    """Parse one JSON object; anything else is refused."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{what} is not JSON: {error}") from error
    return _mapping(value, what)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")

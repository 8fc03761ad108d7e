"""A message's identity is that of the JSON it becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cachefriendly.messages import Message, ToolCall, canonical_json, message_digest


def calling(arguments: Any) -> Message:
    return Message("assistant", "", (ToolCall("f", arguments, "c1"),))


@pytest.mark.parametrize(
    "arguments",
    [{"a": {1: "x", "b": "y"}}, {"a": {None: 1, "b": 2}}, {"a": [{2: 1}, {True: 1, "z": None}]}],
)
def test_keys_of_several_kinds(arguments: dict[str, Any]) -> None:
    """A program may build such arguments; a checkpoint gives them back with text for keys."""
    restored = json.loads(json.dumps(arguments))
    assert message_digest(calling(arguments)) == message_digest(calling(restored))


def test_the_order_of_keys_of_several_kinds_does_not_count() -> None:
    assert canonical_json({"b": 1, 2: 0}) == canonical_json({2: 0, "b": 1}) == '{"2":0,"b":1}'

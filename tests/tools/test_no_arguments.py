"""Calls without arguments as models write them: ``{}``, ``null``, an empty string or nothing."""

from __future__ import annotations

import pytest

from cachefriendly.messages import Tool, ToolCall
from cachefriendly.tools.call_json import BrokenCall, as_arguments
from cachefriendly.tools.dialect import DIALECTS
from cachefriendly.tools.native import NativeDialect

NOW = Tool("now", "The time.", {"type": "object", "properties": {}})
TEXTS = {
    dialect: dialect.render_calls([ToolCall("now", {}, id="a1b2c3d4e")]) for dialect in DIALECTS
}
# Gemma's braces are no JSON; without one, a recipient at the start of a reply is a word of text.
OTHERS = ("gemma4", "functionary_v3_2")
JSON_DIALECTS = [
    dialect for dialect, text in TEXTS.items() if "{}" in text and dialect.name not in OTHERS
]


@pytest.mark.parametrize("written", ["{}", "null", '""'])
@pytest.mark.parametrize("dialect", JSON_DIALECTS, ids=lambda dialect: dialect.name)
def test_no_arguments_may_be_written_as_null(dialect: NativeDialect, written: str) -> None:
    parser = dialect.parser(id_seed="x", tools=[NOW])
    parser.feed(TEXTS[dialect].replace("{}", written))
    reply = parser.finish()
    assert reply.invalid_tool_calls == ()
    (call,) = reply.tool_calls
    assert (call.name, call.arguments) == ("now", {})


def test_most_dialects_write_json() -> None:
    assert len(JSON_DIALECTS) > 18


@pytest.mark.parametrize("value", [[], 0, False, "1", "text"])
def test_anything_else_is_no_object(value: object) -> None:
    with pytest.raises(BrokenCall) as caught:
        as_arguments(value, "now")
    assert caught.value.name == "now"

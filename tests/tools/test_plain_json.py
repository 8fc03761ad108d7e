"""Plain JSON replies, each fed whole and in every split."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachefriendly.events import TextDelta
from cachefriendly.messages import Message, Tool, ToolCall
from cachefriendly.tools.dialect import dialect_for
from cachefriendly.tools.dialects.plain_json import PlainJsonDialect
from cachefriendly.tools.stream import ParsedReply, ReplyParser

Parse = Callable[[ReplyParser, Iterable[str]], ParsedReply]
EverySplit = Callable[[Callable[[], ReplyParser], str], ParsedReply]

CALL = '{"name": "add", "arguments": {"a": 1, "b": [false]}}'
ARGUMENTS = {"a": 1, "b": [False]}

CALLS = {
    "bare": CALL,
    "whitespace around": f"\n  {CALL}\n",
    "pretty": '{\n  "name": "add",\n  "arguments": {\n    "a": 1, "b": [false]\n  }\n}',
    "json fence": f"```json\n{CALL}\n```",
    "fence": f"```\n{CALL}\n```\n",
    "fence never closed": f"```json\n{CALL}\n",
    "parameters": CALL.replace("arguments", "parameters"),
    "typed": CALL.replace("{", '{"type": "function", ', 1),
}
TEXTS = {
    "empty": "",
    "prose": "The sum is 3.",
    "JSON of something else": '{"sum": 3}',
    "unknown tool": CALL.replace("add", "sub"),
    "a list": f"[{CALL}]",
    "text behind": f"{CALL}\nThat calls add.",
    "text before": f"Sure: {CALL}",
    "other fence": f"```python\n{CALL}\n```",
    "fence of code": "```\nx = {}\n```",
    "cut before the name": '{"name": "ad',
    "backticks": "``",
    "broken, no tool's name": '{"name": "sub", "arguments": {',
    "brace": "{",
    "not JSON": "{name: add}",
}
BROKEN = {
    "cut off": ('{"name": "add", "arguments": {"a": ', "the reply ended inside the call"),
    "malformed": ('{"name": "add", "arguments": {a: 1}} and so on', "malformed JSON"),
    "arguments are a list": ('{"name": "add", "arguments": [1]}', "not an array"),
    "fenced and cut off": ('```json\n{"name": "add", "argu', "the reply ended inside the call"),
}


def make() -> ReplyParser:
    return PlainJsonDialect().parser(
        id_seed="seed", tools=[Tool("add", "", {}), Tool("other", "", {})]
    )


@pytest.mark.parametrize("case", CALLS)
def test_one_object_that_names_a_tool_is_a_call(case: str, every_split: EverySplit) -> None:
    reply = every_split(make, CALLS[case])
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("add", ARGUMENTS)]
    assert reply.content == ""


@pytest.mark.parametrize("case", TEXTS)
def test_anything_else_is_text(case: str, every_split: EverySplit) -> None:
    reply = every_split(make, TEXTS[case])
    assert reply.content == TEXTS[case]
    assert (reply.tool_calls, reply.invalid_tool_calls) == ((), ())


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_call_of_a_known_tool_is_data(case: str, every_split: EverySplit) -> None:
    text, reason = BROKEN[case]
    reply = every_split(make, text)
    (invalid,) = reply.invalid_tool_calls
    assert invalid.raw == text
    assert reason in invalid.error
    assert reply.content == ""


def test_text_streams_as_soon_as_it_cannot_be_a_call() -> None:
    parser = make()
    assert parser.feed('{"na') == []
    assert parser.feed('tion": "FR') == [TextDelta('{"nation": "FR')]
    assert parser.feed('"}') == [TextDelta('"}')]
    unarmed = PlainJsonDialect().parser(id_seed="seed")
    assert unarmed.feed('{"name') == [TextDelta('{"name')]


@given(st.lists(st.sampled_from(
    [CALL, "{", "}", '"name"', ": ", '"add"', "```", "json", "\n", " ", "x", "<think>", "</think>",
     ', "arguments": {}', "`"]), max_size=10))  # fmt: skip
def test_any_text_splits_anywhere(parse: Parse, fragments: list[str]) -> None:
    text = "".join(fragments)
    whole = parse(make(), [text])
    assert parse(make(), list(text)) == whole
    assert parse(make(), fragments) == whole


def test_rendered_calls_are_read_back(parse: Parse) -> None:
    dialect = PlainJsonDialect()
    arguments: dict[str, Any] = {"q": 'é "{"', "n": 1.5}
    reply = parse(make(), [dialect.render_calls([ToolCall("add", arguments)])])
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("add", arguments)]
    assert dialect.structure == ()
    assert "add" in dialect.describe([Tool("add", "Adds.", {})])
    assert dialect.render_result(Message("tool", "3", name="add")) == "Result of add:\n3"


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (None, "hermes"),
        ("", "hermes"),
        ("{{ messages }}", "hermes"),
        ("{% if tools %}<tool_call>{{ '\"name\"' }}{{ '\"parameters\"' }}{% endif %}", "hermes"),
        ("{% if tools %}{{ '{\"name\": ' }}{{ '\"parameters\": ' }}{% endif %}", "plain_json"),
    ],
)
def test_the_dialect_follows_from_the_template(template: str | None, name: str) -> None:
    assert dialect_for(template).name == name

"""Hermes replies, each fed whole and in every split."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachefriendly.events import TextDelta, ToolCallReady
from cachefriendly.messages import InvalidToolCall, Message, Tool, ToolCall
from cachefriendly.tools.dialect import Dialect
from cachefriendly.tools.dialects.hermes import HermesDialect
from cachefriendly.tools.stream import ParsedReply, ReplyParser

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
ADD = ("add", {"a": 1, "b": 2})
Calls = list[tuple[str, dict[str, Any]]]
Parse = Callable[[ReplyParser, Iterable[str]], ParsedReply]
EverySplit = Callable[[Callable[[], ReplyParser], str], ParsedReply]

GOOD: dict[str, tuple[str, str, Calls]] = {
    "text only": ("Hello there.\n", "Hello there.\n", []),
    "empty": ("", "", []),
    "only whitespace": (" \n ", " \n ", []),
    "call only": (CALL, "", [ADD]),
    "no newlines": (CALL.replace("\n", ""), "", [ADD]),
    "text before": (f"Let me see.\n\n{CALL}", "Let me see.", [ADD]),
    "whitespace around": (f"\n {CALL}\n ", "", [ADD]),
    "text after": (f"{CALL}\nDone.", "Done.", [ADD]),
    "text on both sides": (f"One.\n{CALL}\nTwo.\n", "One.\nTwo.", [ADD]),
    "two in a row": (f"{CALL}\n{CALL}", "", [ADD, ADD]),
    "two without a gap": (f"{CALL}{CALL}", "", [ADD, ADD]),
    "text between": (f"{CALL}\nand\n{CALL}", "and", [ADD, ADD]),
    "cut before the closing marker": (CALL.removesuffix("\n</tool_call>"), "", [ADD]),
    "cut inside the closing marker": (CALL.removesuffix("call>"), "", [ADD]),
    "closing marker missing between": (
        f"{CALL.removesuffix('</tool_call>')}{CALL}",
        "",
        [ADD, ADD],
    ),
    "nested": (
        '<tool_call>{"name": "f", "arguments": {"x": {"y": [{"z": [[]]}, {}]}}}</tool_call>',
        "",
        [("f", {"x": {"y": [{"z": [[]]}, {}]}})],
    ),
    "unicode": (
        '<tool_call>{"name": "find", "arguments": {"q": "你好 \\u00e9 🎉 \\ud83c\\udf89"}}'
        "</tool_call>",
        "",
        [("find", {"q": "你好 é 🎉 🎉"})],
    ),
    "exact values": (
        '<tool_call>{"name": "f", "arguments": {"a": false, "b": 0, "c": 1.0, "d": null,'
        ' "e": 12345678901234567890, "f": -1e-3, "g": "1"}}</tool_call>',
        "",
        [
            (
                "f",
                {
                    "a": False,
                    "b": 0,
                    "c": 1.0,
                    "d": None,
                    "e": 12345678901234567890,
                    "f": -0.001,
                    "g": "1",
                },
            )
        ],
    ),
    "markers inside a string": (
        '<tool_call>{"name": "w", "arguments": {"t": "a</tool_call>b<tool_call>c"}}</tool_call>!',
        "!",
        [("w", {"t": "a</tool_call>b<tool_call>c"})],
    ),
    "escaped quote before a marker": (
        '<tool_call>{"name": "w", "arguments": {"t": "\\"</tool_call>\\\\"}}</tool_call>',
        "",
        [("w", {"t": '"</tool_call>\\'})],
    ),
    "raw newline in a string": (
        '<tool_call>{"name": "w", "arguments": {"t": "a\nb"}}</tool_call>',
        "",
        [("w", {"t": "a\nb"})],
    ),
    "arguments as a string": (
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
        "",
        [("f", {"a": 1})],
    ),
    "parameters for arguments": (
        '<tool_call>{"name": "f", "parameters": {"a": 1}}</tool_call>',
        "",
        [("f", {"a": 1})],
    ),
    "no arguments at all": ('<tool_call>{"name": "now"}</tool_call>', "", [("now", {})]),
    "arguments first": (
        '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>',
        "",
        [("f", {"a": 1})],
    ),
    "almost markers": (
        "a < b <tool <tool_cal </tool_call> <tool_call",
        "a < b <tool <tool_cal </tool_call> <tool_call",
        [],
    ),
}

BAD: dict[str, tuple[str, str, str]] = {
    "python literal": ("<tool_call>{'name': 'f'}</tool_call>", "", "malformed JSON"),
    "empty body": ("<tool_call></tool_call>", "", "malformed JSON"),
    "prose": ("<tool_call>call add please</tool_call> ok", "ok", "malformed JSON"),
    "trailing comma": (
        '<tool_call>{"name": "f", "arguments": {"a": 1,}}</tool_call>',
        "",
        "malformed JSON",
    ),
    "one brace too many": (
        '<tool_call>{"name": "f", "arguments": {}}}</tool_call>',
        "",
        "malformed JSON",
    ),
    "missing name": ('<tool_call>{"arguments": {"a": 1}}</tool_call>', "", 'no "name"'),
    "name not a string": ('<tool_call>{"name": 7, "arguments": {}}</tool_call>', "", 'no "name"'),
    "array": ('<tool_call>[{"name": "f"}]</tool_call>', "", "not an array"),
    "arguments are a list": (
        '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
        "",
        "must be a JSON object, not an array",
    ),
    "arguments under another key": (
        '<tool_call>{"name": "f", "args": {"a": 1}}</tool_call>',
        "",
        "found args",
    ),
    "string of no object": (
        '<tool_call>{"name": "f", "arguments": "a"}</tool_call>',
        "",
        "malformed JSON",
    ),
    "NaN": ('<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>', "", "NaN is not JSON"),
    "infinite": (
        '<tool_call>{"name": "f", "arguments": {"a": 1e999}}</tool_call>',
        "",
        "out of range",
    ),
    "half a surrogate pair": (
        '<tool_call>{"name": "f", "arguments": {"a": "\\ud800"}}</tool_call>',
        "",
        "surrogate",
    ),
    "cut inside the arguments": (
        '<tool_call>\n{"name": "f", "arguments": {"a": "x',
        "",
        "the reply ended inside the call",
    ),
    "cut after the opening marker": ("Well: <tool_call>\n", "Well:", "the reply ended inside"),
    "string never closed": (
        'A <tool_call>{"name": "f, "arguments": {}}</tool_call>\nB',
        "A\nB",
        "malformed JSON",
    ),
    "string never closed, then the end": (
        '<tool_call>{"name": "f}</tool_call>\nB',
        "B",
        "malformed JSON",
    ),
}


def make(**options: Any) -> ReplyParser:
    return HermesDialect().parser(id_seed="seed", **options)


@pytest.mark.parametrize("case", GOOD)
def test_calls_are_read_in_every_split(case: str, every_split: EverySplit) -> None:
    text, content, calls = GOOD[case]
    reply = every_split(make, text)
    assert reply.content == content
    assert [(call.name, call.arguments) for call in reply.tool_calls] == calls
    assert [list(call.arguments) for call in reply.tool_calls] == [list(c[1]) for c in calls]
    assert json.dumps([c.arguments for c in reply.tool_calls]) == json.dumps([c[1] for c in calls])
    assert reply.invalid_tool_calls == ()
    assert reply.reasoning is None


@pytest.mark.parametrize("case", BAD)
def test_a_broken_call_is_data_with_its_text_and_reason(case: str, every_split: EverySplit) -> None:
    text, content, reason = BAD[case]
    reply = every_split(make, text)
    assert reply.content == content
    assert reply.tool_calls == ()
    (invalid,) = reply.invalid_tool_calls
    assert reason in invalid.error
    assert invalid.raw in text
    assert invalid.raw.startswith("<tool_call>")
    assert invalid.id


def test_a_broken_call_leaves_the_ones_behind_it_alone(every_split: EverySplit) -> None:
    broken = '<tool_call>{"name": "f}</tool_call>'
    reply = every_split(make, f"{broken}{CALL} end")
    assert [call.name for call in reply.tool_calls] == ["add"]
    assert [invalid.raw for invalid in reply.invalid_tool_calls] == [broken]
    assert reply.content == "end"


REASONING: dict[str, tuple[str, bool, str | None, str]] = {
    "block": ("<think>\nHm, 2.\n\nYes.\n</think>\n\nTwo.", False, "Hm, 2.\n\nYes.", "Two."),
    "whitespace first": ("\n<think>a</think>b", False, "a", "b"),
    "empty block": ("<think>\n\n</think>\n\nTwo.", False, None, "Two."),
    "opened by the prompt": ("Hm.\n</think>\n\nTwo.\n", True, "Hm.", "Two.\n"),
    "opened, empty": ("\n\n</think>\n\nTwo.", True, None, "Two."),
    "never closed": ("<think> a < b </thin", False, "a < b </thin", ""),
    "opened and never closed": ("going on \n", True, "going on", ""),
    "calls are thoughts inside": (f"<think>{CALL}</think>ok", False, CALL, "ok"),
    "later blocks are text": ("a <think>b</think>", False, None, "a <think>b</think>"),
    "almost": ("<thinking>", False, None, "<thinking>"),
}


@pytest.mark.parametrize("case", REASONING)
def test_reasoning_is_kept_apart(case: str, every_split: EverySplit) -> None:
    text, opened, reasoning, content = REASONING[case]
    reply = every_split(lambda: make(reasoning_open=opened), text)
    assert (reply.reasoning, reply.content) == (reasoning, content)


def test_reasoning_then_text_then_call(every_split: EverySplit) -> None:
    reply = every_split(make, f"<think>a</think>\nText\n{CALL}")
    assert (reply.reasoning, reply.content) == ("a", "Text")
    assert [call.name for call in reply.tool_calls] == ["add"]


def test_text_is_held_back_only_while_it_may_be_structure() -> None:
    parser = make()
    assert parser.feed("Hello") == [TextDelta("Hello")]
    assert parser.feed(" <tool") == []
    assert parser.feed("box>") == [TextDelta(" <toolbox>")]
    assert parser.feed(" \n") == []
    (event,) = parser.feed(CALL)
    assert isinstance(event, ToolCallReady)
    assert parser.finish().tail_events == ()


def test_call_ids_follow_from_the_seed(parse: Parse) -> None:
    def ids(seed: str) -> list[str]:
        text = f"{CALL}<tool_call>x</tool_call>{CALL}"
        reply = parse(HermesDialect().parser(id_seed=seed), [text])
        return [call.id for call in (*reply.tool_calls, *reply.invalid_tool_calls)]

    assert ids("a") == ids("a")
    assert len({*ids("a"), *ids("b")}) == 6
    assert all(call_id.startswith("call_") for call_id in ids("a"))


FRAGMENTS = st.sampled_from(
    [CALL, "<tool_call>", "</tool_call>", "<think>", "</think>", "\n", " ", "{", "}", '"', "\\",
     '{"name": "f"', ', "arguments": {', "<", "tool_call>", "text", "é你🎉", "null", "[1,"]
)  # fmt: skip


@given(st.lists(FRAGMENTS, max_size=14), st.booleans(), st.data())
def test_any_split_of_any_text_gives_the_same_reply(
    parse: Parse, fragments: list[str], opened: bool, data: st.DataObject
) -> None:
    text = "".join(fragments)
    whole = parse(make(reasoning_open=opened), [text])
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=6).map(sorted))
    edges = [0, *cuts, len(text)]
    pieces = [text[start:stop] for start, stop in itertools.pairwise(edges)]
    assert parse(make(reasoning_open=opened), pieces) == whole
    assert parse(make(reasoning_open=opened), list(text)) == whole


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=6), JSON_VALUES, max_size=4), st.text(min_size=1))
def test_rendered_calls_are_read_back(parse: Parse, arguments: dict[str, Any], name: str) -> None:
    calls = [ToolCall(name, arguments), ToolCall("second", {})]
    reply = parse(make(), list(HermesDialect().render_calls(calls)))
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [
        (name, arguments),
        ("second", {}),
    ]
    assert reply.content == ""


def test_description_is_stable_whatever_the_key_order() -> None:
    dialect: Dialect = HermesDialect()
    one = Tool("f", "Does f.", {"type": "object", "properties": {"a": {}, "b": {}}})
    two = Tool("f", "Does f.", {"properties": {"b": {}, "a": {}}, "type": "object"})
    other = Tool("g", 'Says "é".', {})
    text = dialect.describe([one, other])
    assert text == dialect.describe([two, other])
    lines = text.split("<tools>\n")[1].split("\n</tools>")[0].split("\n")
    assert [json.loads(line)["function"]["name"] for line in lines] == ["f", "g"]
    assert "é" in lines[1]


def test_results_stand_between_markers() -> None:
    text = HermesDialect().render_result(Message("tool", "42", tool_call_id="x"))
    assert text == "<tool_response>\n42\n</tool_response>"
    assert InvalidToolCall("x", "y").name is None

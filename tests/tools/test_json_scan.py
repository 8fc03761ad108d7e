"""The scanner against the standard library's parser."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachefriendly.tools.json_scan import JsonScanner

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)  # fmt: skip
SOUP = st.lists(st.sampled_from([*list('{}[]":,\\ 1a-'), "true", '""', '"k":']), max_size=12)


def status(text: str) -> str:
    scanner = JsonScanner()
    for char in text:
        scanner.push(char)
    return scanner.status


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.sampled_from([None, 2]))
def test_an_object_is_done_at_its_last_brace_only(
    value: dict[str, Any], indent: int | None
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    scanner = JsonScanner()
    for char in text:
        assert scanner.status == "more"
        scanner.push(char)
    assert scanner.status == "done"
    scanner.push("\n")
    assert scanner.status == "done"
    scanner.push("x")
    assert scanner.status == "bad"


@given(SOUP)
def test_what_the_parser_takes_is_done(pieces: list[str]) -> None:
    text = "{" + "".join(pieces)
    if is_object(text):
        assert status(text) == "done"


@pytest.mark.parametrize(
    "text",
    ["[", "1", "x", "}", "{]", "{,", '{"a",', '{"a":}', '{"a":1,}', '{"a":[1,]', "{'", '{"a" 1'],
)  # fmt: skip
def test_what_nothing_can_repair_is_bad(text: str) -> None:
    assert status(text) == "bad"

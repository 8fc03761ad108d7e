"""Schemas that are hard to follow where arguments stand one by one: followed, or refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest

from cachefriendly.errors import SchemaError
from cachefriendly.messages import Tool, ToolCall
from cachefriendly.testing.template_tokenizer import template_tokenizer
from cachefriendly.tools.dialect import DIALECTS
from cachefriendly.tools.dialects.lfm2 import CLOSE, OPEN
from cachefriendly.tools.dialects.tags import TagDialect
from cachefriendly.tools.matcher import resolved_lark
from cachefriendly.tools.native import NativeDialect
from cachefriendly.tools.vocabulary import Vocabulary, start_matcher

ONE_BY_ONE = [
    dialect
    for dialect in DIALECTS
    if isinstance(dialect, TagDialect) or dialect.name in ("dsml", "gemma4", "lfm2")
]
A, TEXT, WHOLE = {"a": {"type": "string"}}, {"type": "string"}, {"type": "integer"}
TWO = {"a": TEXT, "b": TEXT}


def of(schema: Any, **others: Any) -> dict[str, Any]:
    """Parameters with one required argument."""
    return {"type": "object", "properties": {"a": schema}, "required": ["a"], **others}


# Values of "a" that the schema refuses although a careless grammar would let them pass.
VALUES: dict[str, tuple[Any, list[Any]]] = {
    "pattern and length": ({**TEXT, "pattern": "^a+$", "maxLength": 2}, ["aaa", "b", ""]),
    "pattern of two ends": ({**TEXT, "pattern": "^a|b$"}, ["xax", "bx", ""]),
    "pattern of anchored groups": ({**TEXT, "pattern": "(^a$|^b$)"}, ["ab", "xa"]),
    "pattern with an anchor inside": ({**TEXT, "pattern": "(^a|b$)c?"}, ["xa", "x"]),
    "pattern with an escaped dollar": ({**TEXT, "pattern": "^a\\$"}, ["a", "xa$"]),
    "pattern with a slash": ({**TEXT, "pattern": "^a/b$"}, ["a", "a/bc"]),
    "pattern with a set of sets": ({**TEXT, "pattern": "^[^a&&b]$"}, ["a", "&"]),
    "pattern of a class": ({**TEXT, "pattern": "^[^\\d\\s]$"}, ["1", " ", "\u0663"]),
    "pattern with a border": ({**TEXT, "pattern": "\\ba\\b"}, ["xa", "ax"]),
    "pattern that looks ahead": ({**TEXT, "pattern": "^(?=a).*$"}, ["b"]),
    "not": ({**TEXT, "not": {"const": "a"}}, ["a"]),
    "all of": ({**TEXT, "allOf": [{"maxLength": 2}, {"pattern": "^a"}]}, ["b", "aaa"]),
    "all of one": ({"allOf": [{**TEXT, "maxLength": 2}]}, ["aaa"]),
    "a choice beside a length": ({"anyOf": [TEXT, {"type": "null"}], "maxLength": 2}, ["aaa"]),
    "a choice of patterns": (
        {"anyOf": [{**TEXT, "pattern": "^a$"}, {**TEXT, "maxLength": 1}]}, ["ab", "ba"]
    ),
    "an enumeration by reference": ({"$ref": "#/$defs/ab"}, ["c", "ab"]),
    "a reference beside a length": ({"$ref": "#/$defs/text", "maxLength": 2}, ["aaa"]),
    "an enumeration of another type": ({**WHOLE, "enum": ["a", 1]}, ["a", 2]),
    "an enumeration and a length": ({**TEXT, "enum": ["a", "bb"], "maxLength": 1}, ["bb", "c"]),
    "numbers as texts and numbers": ({"enum": ["1", 2]}, ["1x", "2", 1]),
    "true as text": ({"enum": ["true", False]}, [True, "x"]),
    "text or a small number": ({"anyOf": [TEXT, {**WHOLE, "maximum": 3}]}, [7, -10]),
    "text or two numbers": ({"anyOf": [TEXT, {"enum": [1, 2]}]}, [7, 1.5]),
    "text or one object": (
        {"anyOf": [TEXT, {"type": "object", "required": ["x"]}]}, [{}, {"y": 1}, [1]]
    ),
    "text or one truth": ({"anyOf": [TEXT, {"const": True}]}, [False]),
    "a length without a type": ({"maxLength": 2}, ["aaa", "a\nb"]),
    "a pattern without a type": ({"pattern": "^a$"}, ["b"]),
    "a least number without a type": ({"minimum": 5}, [3]),
    "several types": ({"type": ["string", "integer"], "maxLength": 2, "minimum": 5}, ["aaa", 3]),
    "properties without a type": ({"properties": {"x": WHOLE}, "required": ["x"]}, [{"x": "a"}]),
    "short text": ({**TEXT, "maxLength": 2}, ["a\n\n", "\n\na", "aaa"]),
    "long text": ({**TEXT, "minLength": 3}, ["a\n", "\na", "ab", "\n\n"]),
    "a date": ({**TEXT, "format": "date"}, ["2020", "2020-02-31"]),
    "never": (False, ["a", 1]),
}  # fmt: skip
ROOTS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "dependent required": ({"properties": TWO, "dependentRequired": {"a": ["b"]}}, [{"a": "x"}]),
    "dependent schemas": (
        {"properties": TWO, "dependentSchemas": {"a": {"required": ["b"]}}}, [{"a": "x"}]
    ),
    "any of": ({"properties": TWO, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, [{}]),
    "any of objects": ({"anyOf": [of(TEXT), of(WHOLE)]}, [{}]),
    "all of": ({"properties": TWO, "allOf": [{"required": ["a"]}]}, [{}, {"b": "x"}]),
    "not": ({"properties": TWO, "not": {"required": ["a"]}}, [{"a": "x"}]),
    "if": ({"properties": TWO, "if": {"required": ["a"]}, "then": {"required": ["b"]}},
           [{"a": "x"}]),
    "least": ({"properties": TWO, "minProperties": 1}, [{}]),
    "most": ({"properties": TWO, "maxProperties": 1}, [{"a": "x", "b": "y"}]),
    "names": ({"properties": TWO, "propertyNames": {"maxLength": 0}}, [{"a": "x"}]),
    "patterns of names": (
        {"properties": {"a": {}}, "patternProperties": {"^a": WHOLE}}, [{"a": "x"}]
    ),
    "required but not listed": (
        {"properties": {}, "required": ["a"], "additionalProperties": WHOLE}, [{"a": "x"}, {}]
    ),
    "one value": ({"enum": [{"a": "x"}], "properties": A}, [{}, {"a": "y"}]),
    "a reference": (
        {"$ref": "#/$defs/args", "$defs": {"args": of({**TEXT, "maxLength": 2})}},
        [{}, {"a": "aaa"}],
    ),
    "a reference beside a list": (
        {"$ref": "#/$defs/args", "properties": A, "$defs": {"args": of(WHOLE)}}, [{"a": "x"}]
    ),
    "never given": ({"properties": {"a": False}}, [{"a": 1}]),
}  # fmt: skip
DEFINITIONS = {"ab": {**TEXT, "enum": ["a", "b"]}, "text": TEXT}
CASES = [
    *((name, of(part, **{"$defs": DEFINITIONS}), [{"a": value} for value in values])
      for name, (part, values) in VALUES.items()),
    *((f"root: {name}", root, values) for name, (root, values) in ROOTS.items()),
]  # fmt: skip
GOOD: list[tuple[Any, Any]] = [
    ({**TEXT, "pattern": "^a|b$"}, "xb"),
    ({**TEXT, "pattern": "^[A-Z]{2}\\d$", "maxLength": 3}, "AB1"),
    ({**TEXT, "pattern": "a.c"}, "xabcx"),
    ({"anyOf": [{**TEXT, "pattern": "^a$"}, {"type": "null"}]}, None),
    ({"$ref": "#/$defs/ab"}, "b"),
    ({"anyOf": [{"$ref": "#/$defs/ab"}, {"type": "null"}]}, "a"),
    ({"allOf": [{"$ref": "#/$defs/ab"}]}, "a"),
    ({"enum": ["x", 2, None]}, 2),
    ({**TEXT, "format": "uri"}, "https://example.org/a?b=c#d"),
    ({**TEXT, "format": "email"}, "a.b@example.org"),
    ({**TEXT, "minLength": 3}, "a\n\n"),
    ({**WHOLE, "minimum": 3}, 7),
    ({}, "word"),
    ({"type": "array", "items": TEXT}, ["</a>"]),
]


class Forced:
    """Grammar and parser of one dialect for one schema."""

    def __init__(self, dialect: NativeDialect, schema: Mapping[str, Any], marked: bool) -> None:
        texts = dialect.markers
        single = tuple(m for m in texts if not any(other in m for other in texts if other != m))
        tokenizer: Any = template_tokenizer("{{ messages }}", single if marked else ())
        vocabulary = Vocabulary.from_tokenizer(tokenizer, len(tokenizer))
        self.tool = Tool("f", "", schema)
        self.dialect = dialect
        self._encode = tokenizer.encode
        lark = resolved_lark(dialect.call_grammar([self.tool]), vocabulary)
        self._start = start_matcher(vocabulary, lark, what="f")

    def text(self, arguments: Mapping[str, Any]) -> str:
        if self.dialect.name == "lfm2":  # the grammar writes JSON, which is read as well
            pairs = (f"{key}={json.dumps(value)}" for key, value in arguments.items())
            return f"{OPEN}[f({', '.join(pairs)})]{CLOSE}"
        text = self.dialect.render_calls([ToolCall("f", arguments)])
        return f"\n\n{text}" if self.dialect.name == "dsml" else text

    def admits(self, text: str) -> bool:
        matcher = self._start.deep_copy()
        ids = self._encode(text, add_special_tokens=False)
        return matcher.validate_tokens(ids) == len(ids) and bool(
            matcher.consume_tokens(ids) and matcher.is_accepting()
        )

    def check(self, text: str) -> None:
        """The law: what is admitted is one whole call that the schema admits."""
        if not self.admits(text):
            return
        parser = self.dialect.parser(id_seed="x", tools=[self.tool])
        parser.feed(text)
        reply = parser.finish()
        assert reply.invalid_tool_calls == ()
        (call,) = reply.tool_calls
        jsonschema.Draft202012Validator(self.tool.parameters).validate(dict(call.arguments))


def each_dialect() -> Iterator[Any]:
    for dialect in ONE_BY_ONE:
        for marked in (True, False):
            name = f"{dialect.name}, {'tokens' if marked else 'text'}"
            yield pytest.param(dialect, marked, id=name, marks=() if marked else pytest.mark.long)


@pytest.mark.filterwarnings("ignore:Possible set:FutureWarning")
@pytest.mark.parametrize(("dialect", "marked"), [*each_dialect()])
def test_what_a_schema_refuses_is_not_admitted(dialect: NativeDialect, marked: bool) -> None:
    for _, schema, values in CASES:
        try:
            forced = Forced(dialect, schema, marked)
        except SchemaError:
            continue
        for arguments in values:
            forced.check(forced.text(arguments))


@pytest.mark.parametrize(("dialect", "marked"), [*each_dialect()])
def test_what_a_schema_wants_is_admitted(dialect: NativeDialect, marked: bool) -> None:
    for part, value in GOOD:
        schema = of(part, **{"$defs": DEFINITIONS})
        forced = Forced(dialect, schema, marked)
        text = forced.text({"a": value})
        assert forced.admits(text), (part, text)
        forced.check(text)

# ruff: noqa: RUF001 (the bar of DeepSeek's tokens is a wide one)
"""Forced calls of dialects with forms of their own: whatever is sampled is read back and valid."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from cachefriendly.errors import RequestError, SchemaError
from cachefriendly.messages import Tool, ToolCall
from cachefriendly.testing.template_tokenizer import template_tokenizer
from cachefriendly.tools.dialects.deepseek import DeepSeekDialect
from cachefriendly.tools.dialects.dsml import DsmlDialect
from cachefriendly.tools.dialects.gemma4 import GemmaDialect
from cachefriendly.tools.dialects.harmony import HarmonyDialect
from cachefriendly.tools.dialects.kimi import KimiDialect
from cachefriendly.tools.grammar import GrammarMatcher, Vocabulary
from cachefriendly.tools.native import NativeDialect
from tests.tools.driver import sample

DIALECTS: dict[str, NativeDialect] = {
    "harmony": HarmonyDialect(),
    "kimi": KimiDialect(),
    "deepseek": DeepSeekDialect(),
    "deepseek fenced": DeepSeekDialect(fenced=True),
    "dsml": DsmlDialect(),
    "dsml of V4": DsmlDialect(block="tool_calls"),
    "gemma4": GemmaDialect(),
}
TOKENS = {"dsml": ("｜DSML｜",)}
"""What is one token in the model's vocabulary, where that is not every marker."""
CITY = {"type": "string", "description": "Where."}
# Bounds, because sampling at random writes exponents that no float holds.
DEGREES = {"type": "number", "minimum": -180, "maximum": 180}
TREE = {
    "type": "object",
    "properties": {
        "label": {"type": "string", "maxLength": 5},
        "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
    },
    "required": ["label"],
    "additionalProperties": False,
}
TOOLS = (
    Tool(
        "get_weather",
        "Weather of a city.",
        {
            "type": "object",
            "properties": {
                "city": CITY,
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
                "note": {"anyOf": [{"type": "string", "maxLength": 8}, {"type": "null"}]},
            },
            "required": ["city", "days"],
        },
    ),
    Tool("now", "The time.", {"type": "object", "properties": {}}),
    Tool("bare", "No schema at all.", {}),
    Tool("ns.odd-name", "Odd name.", {"properties": {"x": {"type": "boolean"}}}),
    Tool(
        "plant",
        "A tree.",
        {
            "type": "object",
            "properties": {
                "tree": {"$ref": "#/$defs/tree"},
                "at": {
                    "type": "array",
                    "items": {"$ref": "#/$defs/degrees"},
                    "minItems": 2,
                    "maxItems": 3,
                },
                "size": {"enum": ["small", 3, None]},
                "tags": {"type": "object", "additionalProperties": {"type": ["boolean", "null"]}},
            },
            "required": ["tree", "at", "tags"],
            "$defs": {"tree": TREE, "degrees": DEGREES},
        },
    ),
)
SCHEMAS = {tool.name: tool.parameters for tool in TOOLS}


MARKERS = ["markers are tokens", pytest.param("markers are text", marks=pytest.mark.long)]


@pytest.fixture(scope="module", params=MARKERS)
def vocabularies(request: pytest.FixtureRequest) -> dict[str, tuple[Vocabulary, Any]]:
    """For each dialect a small vocabulary, in which its markers are one token each or ordinary."""
    made = {}
    for name, dialect in DIALECTS.items():
        controls = TOKENS.get(dialect.name, dialect.markers)
        controls = controls if request.param == "markers are tokens" else ()
        tokenizer: Any = template_tokenizer("{{ messages }}", controls)
        made[name] = Vocabulary.from_tokenizer(tokenizer, len(tokenizer)), tokenizer
    return made


@pytest.mark.parametrize("name", DIALECTS)
def test_a_forced_call_is_read_back_and_valid(
    name: str, vocabularies: dict[str, tuple[Vocabulary, Any]]
) -> None:
    dialect, (vocabulary, tokenizer) = DIALECTS[name], vocabularies[name]
    for number, tool in enumerate(TOOLS):
        spec = dialect.call_grammar([tool])
        for seed in range(4):
            matcher = GrammarMatcher(spec, vocabulary, max_tokens=480 + 60 * seed)
            ids = sample(matcher, vocabulary, 10 * number + seed)
            text = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
            parser = dialect.parser(id_seed="x", tools=TOOLS)
            parser.feed(text)
            reply = parser.finish()
            assert (reply.content, reply.reasoning, reply.invalid_tool_calls) == ("", None, ())
            (call,) = reply.tool_calls
            assert call.name == tool.name
            jsonschema.Draft202012Validator(SCHEMAS[call.name]).validate(dict(call.arguments))
            if call.name in ("now", "bare"):
                assert call.arguments == {}


@pytest.mark.parametrize("name", DIALECTS)
def test_one_of_several_tools_is_called(
    name: str, vocabularies: dict[str, tuple[Vocabulary, Any]]
) -> None:
    dialect, (vocabulary, tokenizer) = DIALECTS[name], vocabularies[name]
    called = set()
    for seed in range(6):
        matcher = GrammarMatcher(dialect.call_grammar(TOOLS), vocabulary, max_tokens=480)
        parser = dialect.parser(id_seed="x", tools=TOOLS)
        parser.feed(tokenizer.decode(sample(matcher, vocabulary, seed)))
        called.update(call.name for call in parser.finish().tool_calls)
    assert len(called) > 1


@pytest.mark.parametrize("name", DIALECTS)
def test_a_grammar_admits_what_the_dialect_writes(
    name: str, vocabularies: dict[str, tuple[Vocabulary, Any]]
) -> None:
    dialect, (vocabulary, tokenizer) = DIALECTS[name], vocabularies[name]
    call = ToolCall("get_weather", {"city": "Zürich", "unit": "celsius", "days": 3})
    for many, calls in ((False, [call]), (True, [call, call])):
        matcher = GrammarMatcher(
            dialect.call_grammar(TOOLS, many=many), vocabulary, max_tokens=2000
        )
        text = dialect.render_calls(calls)
        if name.startswith("dsml"):
            text = "\n\n" + text
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert [matcher.accept(token) for token in ids] == ids


@pytest.mark.parametrize("name", DIALECTS)
def test_bad_tools_are_refused_by_name(name: str) -> None:
    dialect = DIALECTS[name]
    with pytest.raises(RequestError, match="offers no tools"):
        dialect.call_grammar([])
    unique = {"properties": {"a": {"type": "array", "uniqueItems": True}}}
    with pytest.raises(SchemaError, match="tool 'f'"):
        dialect.call_grammar([TOOLS[1], Tool("f", "", unique)])

"""Forced calls in every dialect: whatever is sampled is read back, and valid by the schema."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from cachefriendly.messages import Tool
from cachefriendly.testing.template_tokenizer import template_tokenizer
from cachefriendly.tools.dialect import DIALECTS
from cachefriendly.tools.grammar import GrammarMatcher, Vocabulary
from cachefriendly.tools.native import NativeDialect
from tests.tools.driver import sample

PLAN = Tool(
    "plan",
    "Plans.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 2},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "size": {"enum": ["small", 3, None]},
            "note": {"anyOf": [{"type": "string", "maxLength": 8}, {"type": "null"}]},
            "code": {"type": "string", "pattern": "^[A-Z]{2}[0-9]$"},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "spot": {"$ref": "#/$defs/spot"},
        },
        "required": ["city", "days", "spot", "size"],
        "$defs": {
            "spot": {
                "type": "object",
                "properties": {"x": {"type": "boolean"}, "name": {"type": "string"}},
                "required": ["x"],
            }
        },
    },
)
TOOLS = (PLAN, Tool("now", "The time.", {"type": "object", "properties": {}}))
SCHEMAS = {tool.name: tool.parameters for tool in TOOLS}


@pytest.mark.parametrize("marked", [True, False], ids=["markers are tokens", "markers are text"])
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_forced_call_is_read_back_and_valid(dialect: NativeDialect, marked: bool) -> None:
    texts = dialect.markers
    single = tuple(m for m in texts if not any(other in m for other in texts if other != m))
    tokenizer: Any = template_tokenizer("{{ messages }}", single if marked else ())
    vocabulary = Vocabulary.from_tokenizer(tokenizer, len(tokenizer))
    for tool in TOOLS:
        spec = dialect.call_grammar([tool])
        for seed in range(2):
            ids = sample(GrammarMatcher(spec, vocabulary, max_tokens=800), vocabulary, seed)
            parser = dialect.parser(id_seed="x", tools=TOOLS)
            parser.feed(tokenizer.decode(ids, clean_up_tokenization_spaces=False))
            reply = parser.finish()
            assert (reply.content.strip(), reply.invalid_tool_calls) == ("", ())
            (call,) = reply.tool_calls
            assert call.name == tool.name
            jsonschema.Draft202012Validator(SCHEMAS[call.name]).validate(dict(call.arguments))

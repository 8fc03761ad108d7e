"""Forced tool calls: the grammar against the parser of its dialect, on every kind of marker."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from cachefriendly.errors import RequestError, SchemaError
from cachefriendly.messages import Tool
from cachefriendly.tools.dialect import Dialect
from cachefriendly.tools.dialects.hermes import HermesDialect
from cachefriendly.tools.dialects.plain_json import PlainJsonDialect
from cachefriendly.tools.grammar import GrammarMatcher, Vocabulary
from tests.tools.driver import sample

WEATHER = Tool(
    "get_weather",
    "Weather of a city.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer"},
        },
        "required": ["city"],
    },
)
NOW = Tool("now", "The time.", {"type": "object", "properties": {}})
BARE = Tool("bare", "No schema at all.", {})
ODD = Tool('say "hi"\\日本', "Odd name.", {"properties": {"x": {"type": "boolean"}}})
TOOLS = (WEATHER, NOW, BARE, ODD)
SCHEMAS = {tool.name: tool.parameters for tool in TOOLS}


@pytest.fixture(scope="module", params=["ordinary text", "special", "added, not special"])
def any_vocabulary(request: pytest.FixtureRequest, demo_tokenizer: Any) -> tuple[Vocabulary, Any]:
    """The demo's vocabulary with the dialect's markers as text, special or plain added tokens."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=type(demo_tokenizer.backend_tokenizer).from_str(
            demo_tokenizer.backend_tokenizer.to_str()
        ),
        eos_token=demo_tokenizer.eos_token,
    )
    if request.param != "ordinary text":
        special = request.param == "special"
        tokenizer.add_tokens(
            [
                AddedToken(text, special=special, normalized=False)
                for text in HermesDialect.structure
            ],
            special_tokens=special,
        )
    return Vocabulary.from_tokenizer(tokenizer, len(tokenizer)), tokenizer


@pytest.mark.parametrize("dialect", [HermesDialect(), PlainJsonDialect()], ids=lambda d: d.name)
@pytest.mark.parametrize("budget", [40, 45, 60, 120])
def test_a_forced_call_is_read_back_and_valid(
    dialect: Dialect, budget: int, any_vocabulary: tuple[Vocabulary, Any]
) -> None:
    vocabulary, tokenizer = any_vocabulary
    spec = dialect.call_grammar(TOOLS)
    for seed in range(6):
        ids = sample(GrammarMatcher(spec, vocabulary, max_tokens=budget), vocabulary, seed)
        assert len(ids) <= budget
        parser = dialect.parser(id_seed="x", tools=TOOLS)
        parser.feed(tokenizer.decode(ids, clean_up_tokenization_spaces=False))
        reply = parser.finish()
        (call,) = reply.tool_calls
        assert reply.content == ""
        assert reply.invalid_tool_calls == ()
        jsonschema.Draft202012Validator(SCHEMAS[call.name]).validate(dict(call.arguments))
        if call.name in ("now", "bare"):
            assert call.arguments == {}


def test_markers_are_one_id_where_the_vocabulary_has_them(
    any_vocabulary: tuple[Vocabulary, Any],
) -> None:
    vocabulary, tokenizer = any_vocabulary
    spec = HermesDialect().call_grammar([NOW])
    ids = sample(GrammarMatcher(spec, vocabulary, max_tokens=50), vocabulary, 0)
    marker = tokenizer.get_added_vocab().get("<tool_call>")
    if marker is not None:
        assert ids[0] == marker
        assert ids[-1] == tokenizer.get_added_vocab()["</tool_call>"]
    expected = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == expected


def test_a_forced_name_leaves_no_choice(vocabulary: Vocabulary, demo_tokenizer: Any) -> None:
    for seed in range(3):
        spec = HermesDialect().call_grammar([WEATHER])
        ids = sample(GrammarMatcher(spec, vocabulary, max_tokens=60), vocabulary, seed)
        assert '{"name": "get_weather", "arguments": {"city": "' in demo_tokenizer.decode(ids)


def test_many_calls_follow_each_other_only_when_asked(vocabulary: Vocabulary) -> None:
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    ids = vocabulary.tokenizer.tokenize_str(f"{call}\n{call}")
    for many in (False, True):
        spec = HermesDialect().call_grammar([NOW], many=many)
        matcher = GrammarMatcher(spec, vocabulary, max_tokens=100)
        taken: list[int] = []
        for token in ids:
            if not matcher.finished:
                taken.append(matcher.accept(token))
        assert (taken == ids) is many
        assert matcher.finished is not many
        if many:
            assert matcher.allowed()[list(vocabulary.stop_ids)].all()


def test_a_budget_too_small_names_the_tokens_needed(vocabulary: Vocabulary) -> None:
    spec = HermesDialect().call_grammar([WEATHER])
    with pytest.raises(RequestError, match=r"call of 'get_weather'.*max_tokens=5;") as caught:
        GrammarMatcher(spec, vocabulary, max_tokens=5)
    least = int(str(caught.value).rsplit(" ", 1)[1])
    ids = sample(GrammarMatcher(spec, vocabulary, max_tokens=least), vocabulary, 0)
    assert len(ids) == least


def test_bad_tools_are_refused_by_name() -> None:
    dialect = HermesDialect()
    with pytest.raises(RequestError, match="offers no tools"):
        dialect.call_grammar([])
    with pytest.raises(SchemaError, match=r"tool 'f'.*uniqueItems"):
        dialect.call_grammar(
            [NOW, Tool("f", "", {"properties": {"a": {"type": "array", "uniqueItems": True}}})]
        )
    with pytest.raises(SchemaError, match="tool 'f': schema at"):
        dialect.call_grammar([Tool("f", "", {"type": "object", "required": 3})])

"""Whatever is sampled, a constrained reply ends whole, valid and within its budget."""

from __future__ import annotations

import contextlib
import copy
import json
import sys
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cachefriendly.errors import MissingExtra, RequestError, SchemaError
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.grammar import GrammarMatcher, Vocabulary, json_grammar

OBJECT = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 2},
        "note": {"type": "string"},
    },
    "required": ["name", "age", "tags"],
}
NESTED = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/box"}, "b": {"type": "array", "items": OBJECT}},
    "required": ["a", "b"],
    "$defs": {
        "box": {
            "type": "object",
            "properties": {"box": {"anyOf": [{"$ref": "#/$defs/box"}, {"type": "null"}]}},
            "required": ["box"],
        }
    },
}
TREE = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {"l": {"$ref": "#/$defs/tree"}, "r": {"$ref": "#/$defs/tree"}},
                    "required": ["l", "r"],
                },
                {
                    "type": "object",
                    "properties": {"zzz": {"type": "integer"}},
                    "required": ["zzz"],
                },
            ]
        }
    },
}
SCHEMAS: dict[str, Any] = {
    "object": OBJECT,
    "nested": NESTED,
    "tree": TREE,
    "anything": {},
    "any object": {"type": "object"},
    "string": {"type": "string"},
    "long string": {"type": "string", "minLength": 30, "maxLength": 40},
    "pattern": {"type": "string", "pattern": "^[a-f0-9]{8}-[\\u4e00-\\u9fff]{2,5}$"},
    "date": {"type": "string", "format": "date-time"},
    "number": {"type": "number"},
    "integer": {"type": "integer"},
    "bounded number": {"type": "number", "minimum": -1.5, "maximum": 0.25},
    "enum": {"enum": ["red", "日本語", 3, None, False, {"deep": [1]}]},
    "const": {"const": {"x": "…"}},
    "any of": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "boolean"}}]},
    "array": {"type": "array", "items": {"type": "number"}, "minItems": 3, "maxItems": 5},
    "tuple": {"type": "array", "prefixItems": [{"type": "string"}, {"const": 1}], "minItems": 2},
    "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    "odd keys": {
        "type": "object",
        "properties": {'a"b\\c': {"type": "string"}, "日本": {"type": "null"}},
        "required": ['a"b\\c', "日本"],
    },
}


def shortest(spec: GrammarSpec, vocabulary: Vocabulary) -> int:
    """The least budget the matcher takes, which its own error must name."""
    with contextlib.suppress(RequestError):
        GrammarMatcher(spec, vocabulary, max_tokens=1)
        return 1
    with pytest.raises(RequestError, match=r"but max_tokens=1") as caught:
        GrammarMatcher(spec, vocabulary, max_tokens=1)
    least = int(str(caught.value).rsplit(" ", 1)[1])
    assert f"needs {least} new tokens" in str(caught.value)
    with pytest.raises(RequestError):
        GrammarMatcher(spec, vocabulary, max_tokens=least - 1)
    return least


def run(
    matcher: GrammarMatcher, vocabulary: Vocabulary, seed: int, bias: Mapping[int, float]
) -> list[int]:
    """Sample with random logits until the matcher is finished."""
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = []
    while not matcher.finished:
        logits = torch.randn(vocabulary.n_vocab, generator=generator) * 3
        for token, value in bias.items():
            logits[token] += value
        allowed = matcher.allowed()
        assert allowed.shape == logits.shape
        assert allowed.any()
        ids.append(matcher.accept(int(logits.masked_fill(~allowed, -torch.inf).argmax())))
    return [token for token in ids if token not in vocabulary.stop_ids]


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("room", [0, 1, 2, 5, 13, 40])
def test_random_replies_are_valid_at_every_budget(
    name: str, room: int, vocabulary: Vocabulary, demo_tokenizer: Any
) -> None:
    schema = SCHEMAS[name]
    spec = json_grammar(schema, what=name)
    budget = shortest(spec, vocabulary) + room
    quote = vocabulary.tokenizer.tokenize_str('"')[0]
    for seed, bias in enumerate([{}, {}, {quote: -50.0}, dict.fromkeys(vocabulary.stop_ids, 20.0)]):
        matcher = GrammarMatcher(spec, vocabulary, max_tokens=budget)
        ids = run(matcher, vocabulary, seed * 1000 + room, bias)
        assert len(ids) <= budget
        text = demo_tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        value = json.loads(text)
        assert "\ufffd" not in text
        jsonschema.Draft202012Validator(schema).validate(value)


@settings(max_examples=25)
@given(st.integers(0, 2**31), st.integers(0, 60), st.sampled_from(sorted(SCHEMAS)))
def test_any_seed_and_budget(
    vocabulary: Vocabulary, demo_tokenizer: Any, seed: int, room: int, name: str
) -> None:
    spec = json_grammar(SCHEMAS[name], what=name)
    matcher = GrammarMatcher(spec, vocabulary, max_tokens=shortest(spec, vocabulary) + room)
    ids = run(matcher, vocabulary, seed, {})
    value = json.loads(demo_tokenizer.decode(ids, clean_up_tokenization_spaces=False))
    jsonschema.Draft202012Validator(SCHEMAS[name]).validate(value)


def write(matcher: GrammarMatcher, vocabulary: Vocabulary, text: str) -> list[int]:
    return [matcher.accept(token) for token in vocabulary.tokenizer.tokenize_str(text)]


def test_a_wanted_reply_is_taken_as_it_is(vocabulary: Vocabulary) -> None:
    text = '{"name": "Zoë 🎉", "age": 41, "tags": ["a", "", "c\\n"], "note": "x"}'
    spec = json_grammar(OBJECT, what="x")
    matcher = GrammarMatcher(spec, vocabulary, max_tokens=100)
    assert write(matcher, vocabulary, text) == vocabulary.tokenizer.tokenize_str(text)
    assert matcher.finished
    with pytest.raises(ValueError, match="complete"):
        matcher.accept(0)


def test_a_reply_that_may_go_on_ends_with_a_stop_id(vocabulary: Vocabulary) -> None:
    matcher = GrammarMatcher(json_grammar({"type": "integer"}, what="x"), vocabulary, max_tokens=9)
    (stop,) = vocabulary.stop_ids
    assert not matcher.allowed()[stop]
    write(matcher, vocabulary, "12")
    assert matcher.allowed()[stop]
    assert not matcher.finished
    assert matcher.accept(stop) == stop
    assert matcher.finished


def test_an_id_that_is_not_allowed_is_replaced(vocabulary: Vocabulary) -> None:
    matcher = GrammarMatcher(json_grammar(OBJECT, what="x"), vocabulary, max_tokens=100)
    (stop,) = vocabulary.stop_ids
    for token in (stop, 10**9, -1, vocabulary.n_vocab - 1):
        taken = matcher.accept(token)
        assert taken != token


def test_strings_take_text_only(vocabulary: Vocabulary, demo_tokenizer: Any) -> None:
    matcher = GrammarMatcher(json_grammar({"type": "string"}, what="x"), vocabulary, max_tokens=9)
    write(matcher, vocabulary, '"a')
    allowed = matcher.allowed()
    texts = [vocabulary.tokenizer.decode_bytes([int(i)]) for i in allowed.nonzero()]
    assert len(texts) > 40_000
    assert not any(byte < 0x20 for text in texts for byte in text)
    assert not allowed[demo_tokenizer.all_special_ids].any()


def test_numbers_and_strings_stop_at_the_budget(
    vocabulary: Vocabulary, demo_tokenizer: Any
) -> None:
    digit, letter = (vocabulary.tokenizer.tokenize_str(text)[0] for text in "7Q")
    schema = {"type": "array", "items": {"type": ["number", "string"]}, "minItems": 1}
    for token in (digit, letter):
        matcher = GrammarMatcher(json_grammar(schema, what="x"), vocabulary, max_tokens=60)
        ids = run(matcher, vocabulary, 0, {token: 1000.0})
        assert len(ids) in (59, 60)
        assert len(json.loads(demo_tokenizer.decode(ids))) >= 1


def test_every_stop_id_ends_a_reply(demo_tokenizer: Any) -> None:
    vocabulary = Vocabulary.from_tokenizer(demo_tokenizer, len(demo_tokenizer), stop_ids=[0, 2])
    matcher = GrammarMatcher(json_grammar({"type": "integer"}, what="x"), vocabulary, max_tokens=5)
    write(matcher, vocabulary, "1")
    assert matcher.allowed()[[0, 2]].all()
    assert matcher.accept(0) == 0
    assert matcher.finished


def test_logits_may_be_wider_or_narrower_than_the_tokenizer(demo_tokenizer: Any) -> None:
    size = len(demo_tokenizer)
    for n_vocab in (size - 1000, size, size + 7, size + 64):
        vocabulary = Vocabulary.from_tokenizer(demo_tokenizer, n_vocab)
        matcher = GrammarMatcher(json_grammar({}, what="x"), vocabulary, max_tokens=20)
        allowed = matcher.allowed()
        assert allowed.shape == (n_vocab,)
        assert allowed.dtype is torch.bool
        assert not allowed[size:].any()
        assert max(run(matcher, vocabulary, 0, {})) < n_vocab


def test_equal_arguments_give_one_vocabulary(demo_tokenizer: Any) -> None:
    size = len(demo_tokenizer)
    first = Vocabulary.from_tokenizer(demo_tokenizer, size)
    assert Vocabulary.from_tokenizer(demo_tokenizer, size) is first
    assert Vocabulary.from_tokenizer(demo_tokenizer, size, stop_ids=[0, 2]) is not first
    assert Vocabulary.from_tokenizer(copy.deepcopy(demo_tokenizer), size) is not first


def test_the_owners_tokenizer_is_left_as_it_was(demo_tokenizer: Any) -> None:
    own = copy.deepcopy(demo_tokenizer)
    own.backend_tokenizer.enable_truncation(7)
    assert Vocabulary.from_tokenizer(own, len(own)).tokenizer.vocab_size == len(own)
    assert own.backend_tokenizer.truncation["max_length"] == 7


def test_a_vocabulary_needs_a_fast_tokenizer_and_a_stop_id(demo_tokenizer: Any) -> None:
    with pytest.raises(RequestError, match="not a fast tokenizer"):
        Vocabulary.from_tokenizer(object(), 10)
    with pytest.raises(RequestError, match="no end-of-sequence id"):
        Vocabulary.from_tokenizer(demo_tokenizer, 100, stop_ids=[None, 100])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"not": {"type": "string"}}, "not"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "greater than maximum"),
        ({"type": "string", "pattern": "^(?=a)b"}, "look-around"),
        ({"type": "nothing"}, "use one of"),
    ],
)
def test_what_cannot_be_enforced_is_refused(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(SchemaError) as caught:
        json_grammar(schema, what="response schema")
    assert str(caught.value).startswith("response schema: ")
    assert reason in str(caught.value)
    assert "x-guidance" not in str(caught.value)


def test_a_schema_that_nothing_finite_fulfils_is_refused(vocabulary: Vocabulary) -> None:
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    with pytest.raises((SchemaError, RequestError)):
        GrammarMatcher(json_grammar(schema, what="endless"), vocabulary, max_tokens=100)


def test_without_llguidance_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(MissingExtra, match=r"pip install 'cachefriendly\[grammar\]'"):
        json_grammar({}, what="x")


def test_llguidance_torch_helper_is_never_imported(vocabulary: Vocabulary) -> None:
    GrammarMatcher(json_grammar({}, what="x"), vocabulary, max_tokens=20).allowed()
    assert "llguidance.torch" not in sys.modules

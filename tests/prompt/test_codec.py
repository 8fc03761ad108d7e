"""Codecs: equal tokenizers share one; who changes a tokenizer later changes nobody else's."""

from __future__ import annotations

import gc
import json
import sys
import weakref
from collections import Counter
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from cachefriendly.prompt.codec import codec_for
from cachefriendly.prompt.control import ControlSet, ControlToken
from cachefriendly.prompt.fingerprint import tokenizer_digest
from cachefriendly.testing import byte_tokenizer

NO_CONTROLS = ControlSet(())


def test_equal_tokenizers_share_a_codec_while_it_is_used() -> None:
    first = codec_for(byte_tokenizer(), NO_CONTROLS)
    assert codec_for(byte_tokenizer(), NO_CONTROLS) is first
    seen = weakref.ref(first)
    del first
    gc.collect()
    assert seen() is None


def test_another_added_token_and_another_control_set_get_codecs_of_their_own() -> None:
    tokenizer = byte_tokenizer()
    before = codec_for(tokenizer, NO_CONTROLS)
    ids = before.encode_whole("<new>")
    tokenizer.add_tokens([AddedToken("<new>", special=True)])
    after = codec_for(tokenizer, NO_CONTROLS)
    (new,) = after.encode_whole("<new>")
    assert before.encode_whole("<new>") == ids != [new]
    held = codec_for(tokenizer, ControlSet([ControlToken("<new>", new)]))
    assert held.encode_stretch("<new>", first=True) == ids
    assert after.encode_stretch("<new>", first=True) == [new]


@pytest.mark.parametrize("inside", [True, False])
def test_only_the_first_stretch_gets_the_space_of_a_prepending_scheme(inside: bool) -> None:
    tokenizer = byte_tokenizer()
    space: pre_tokenizers.PreTokenizer = pre_tokenizers.Metaspace("_", prepend_scheme="first")
    if inside:
        space = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), space])
    tokenizer.backend_tokenizer.pre_tokenizer = space
    codec = codec_for(tokenizer, NO_CONTROLS)
    first, later = (codec.encode_stretch("ab", first=first) for first in (True, False))
    assert first[-len(later) :] == later
    assert len(first) > len(later)


def word_tokenizer(model: Any, *, normalizer: Any = None, pre_tokenizer: Any = None) -> Any:
    backend = Tokenizer(model)
    backend.normalizer, backend.decoder = normalizer, decoders.Metaspace()
    backend.pre_tokenizer = pre_tokenizer or pre_tokenizers.Metaspace(prepend_scheme="first")
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>")


CHARACTERS = ["<unk>", "<eos>", "[a]", "▁", *"abcBC<>[]1 eos"]
WORDS = {text: number for number, text in enumerate(dict.fromkeys([*CHARACTERS, "ab", "▁a"]))}
SEQUENCE = pre_tokenizers.Sequence(
    [pre_tokenizers.Digits(), pre_tokenizers.Metaspace(prepend_scheme="first")]
)
KINDS: dict[str, Any] = {
    "bytes": byte_tokenizer,
    "bpe": lambda: word_tokenizer(
        models.BPE(WORDS, [("a", "b"), ("▁", "a")], unk_token="<unk>", ignore_merges=True)
    ),
    "wordpiece": lambda: word_tokenizer(
        models.WordPiece(WORDS, unk_token="<unk>", continuing_subword_prefix=""),
        normalizer=normalizers.Lowercase(),
        pre_tokenizer=SEQUENCE,
    ),
    "wordlevel": lambda: word_tokenizer(models.WordLevel(WORDS, unk_token="<unk>")),
    "unigram": lambda: word_tokenizer(
        models.Unigram([(text, -float(i)) for text, i in WORDS.items()], unk_id=0),
        normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()]),
    ),
}
ADDED = [
    AddedToken("<gone>", special=True),
    AddedToken("<kept>", special=True, lstrip=True),
    AddedToken("[a]", normalized=True),
    AddedToken("bc", single_word=True, rstrip=True),
    AddedToken("<also gone>"),
    AddedToken("ca", special=True),
]
TEXTS = ("", "ab", " ab", "a <gone> b", "ab <kept>ab", "BC bc abc[A][a]<also gone>", "ca1 2ca  b")


def naive_stretch(state: str, gone: set[str], text: str, first: bool) -> list[int]:
    """The state without the tokens that are gone, read as a tokenizer; ids as they were."""
    plain = json.loads(state)
    plain["added_tokens"] = [t for t in plain["added_tokens"] if t["content"] not in gone]
    plain["post_processor"] = None
    if not first:
        text_of = json.dumps(plain["pre_tokenizer"])
        plain["pre_tokenizer"] = json.loads(text_of.replace('"first"', '"never"'))
    clone = Tokenizer.from_str(json.dumps(plain))
    old = {clone.token_to_id(t["content"]): t["id"] for t in plain["added_tokens"]}
    return [old.get(i, i) for i in clone.encode(text, add_special_tokens=False).ids]


@pytest.mark.parametrize("kind", KINDS)
def test_stretches_are_what_a_tokenizer_without_the_control_tokens_makes(kind: str) -> None:
    tokenizer: Any = KINDS[kind]()
    for token in ADDED:
        tokenizer.add_tokens([token], special_tokens=token.special)
    backend = tokenizer.backend_tokenizer
    gone = {"<gone>", "<also gone>", tokenizer.eos_token}
    controls = ControlSet([ControlToken(text, backend.token_to_id(text)) for text in sorted(gone)])
    codec, state = codec_for(tokenizer, controls), backend.to_str()
    for text in TEXTS:
        assert codec.encode_whole(text) == backend.encode(text, add_special_tokens=False).ids
        for first in (True, False):
            wanted = naive_stretch(state, gone, text, first)
            assert codec.encode_stretch(text, first) == wanted, (text, first)


def test_a_vocabulary_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading or writing 50,000 words holds up every thread for 70 to 500 ms."""
    tokenizer, parsed, calls = byte_tokenizer(), list[str](), Counter[str]()
    loads, words = json.loads, len(tokenizer.backend_tokenizer.to_str())

    def watch(frame: Any, event: str, argument: Any) -> None:
        if event == "c_call":
            calls[argument.__name__] += 1

    def watched(text: str) -> Any:
        parsed.append(text)
        return loads(text)

    monkeypatch.setattr(json, "loads", watched)
    sys.setprofile(watch)
    try:
        codec = codec_for(tokenizer, ControlSet([ControlToken("<|im_end|>", 257)]))
    finally:
        sys.setprofile(None)
    assert codec.encode_whole("<|im_end|>") == [257]
    assert calls["from_str"] == 1
    assert codec.digest == tokenizer_digest(tokenizer)
    assert sum(map(len, parsed)) < words / 5


def test_who_changes_the_parts_of_a_tokenizer_changes_no_codec() -> None:
    tokenizer = word_tokenizer(models.BPE(WORDS, [("a", "b")], unk_token="<unk>"))
    codec = codec_for(tokenizer, NO_CONTROLS)
    before = codec.encode_whole("a b"), codec.encode_stretch("a b", True), codec.decode([3, 4])
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer.prepend_scheme = "never"
    backend.pre_tokenizer.replacement = "_"
    backend.decoder.replacement = "_"
    backend.model.unk_token = "a"
    assert before == (
        codec.encode_whole("a b"),
        codec.encode_stretch("a b", True),
        codec.decode([3, 4]),
    )

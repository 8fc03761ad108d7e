"""Codecs: equal tokenizers share one; who changes a tokenizer later changes nobody else's."""

from __future__ import annotations

import gc
import weakref

import pytest
from tokenizers import AddedToken, pre_tokenizers

from cachefriendly.prompt.codec import codec_for
from cachefriendly.prompt.control import ControlSet, ControlToken
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

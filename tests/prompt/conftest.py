"""Tokenizers and ids for the prompt tests."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable
from typing import Any

import pytest
from tokenizers import AddedToken

from cachefriendly.testing.tokenizer import CONTROL_TOKENS


@pytest.fixture(scope="session")
def tokenizer_with(demo_tokenizer: Any) -> Callable[..., Any]:
    """A copy of the demo tokenizer, with a template and the control tokens of tool models."""

    @functools.cache
    def make(template: str | None = None, extra: tuple[str, ...] = CONTROL_TOKENS) -> Any:
        tokenizer = copy.deepcopy(demo_tokenizer)
        if template is not None:
            tokens = [AddedToken(text, special=False, normalized=False) for text in extra]
            tokenizer.add_tokens(tokens)
            tokenizer.chat_template = template
        return tokenizer

    return make


@pytest.fixture(scope="session")
def spell(demo_tokenizer: Any) -> Callable[..., list[int]]:
    """Ids of a text as a model may have generated it: one token per character.

    They decode to the text and are not what the tokenizer makes of it.
    """

    def ids(text: str, tokenizer: Any = demo_tokenizer) -> list[int]:
        out: list[int] = []
        for piece in re.findall(r"</?[a-z_]+>|.", text, re.DOTALL):
            out += tokenizer.encode(piece, add_special_tokens=False)
        assert tokenizer.decode(out) == text
        return out

    return ids

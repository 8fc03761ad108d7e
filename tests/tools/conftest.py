"""Feed a parser in different splits and collect what comes out; one vocabulary for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from cachefriendly.tools.grammar import Vocabulary
from cachefriendly.tools.stream import ParsedReply, ReplyParser
from tests.tools.driver import parse_pieces, pieces_by_token


@pytest.fixture(scope="session")
def parse() -> Callable[[ReplyParser, Iterable[str]], ParsedReply]:
    return parse_pieces


@pytest.fixture(scope="session")
def every_split(
    demo_tokenizer: Any,
) -> Callable[[Callable[[], ReplyParser], str], ParsedReply]:
    """Whole, char by char, token by token and cut once at every place: one and the same reply."""

    def check(make: Callable[[], ReplyParser], text: str) -> ParsedReply:
        whole = parse_pieces(make(), [text])
        assert parse_pieces(make(), list(text)) == whole
        assert parse_pieces(make(), pieces_by_token(demo_tokenizer, text)) == whole
        for cut in range(len(text) + 1):
            assert parse_pieces(make(), [text[:cut], text[cut:]]) == whole
        return whole

    return check


@pytest.fixture(scope="session")
def vocabulary(demo_tokenizer: Any) -> Vocabulary:
    """The demo's, with logits a little wider than the tokenizer."""
    return Vocabulary.from_tokenizer(demo_tokenizer, len(demo_tokenizer) + 100)

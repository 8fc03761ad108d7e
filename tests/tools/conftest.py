"""Feed a parser in different splits and collect what comes out; one vocabulary for all tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from cachefriendly.events import ReasoningDelta, TextDelta, ToolCallReady
from cachefriendly.tools.grammar import Vocabulary
from cachefriendly.tools.stream import ParsedReply, ReplyEvent, ReplyParser


def parse_pieces(parser: ReplyParser, pieces: Iterable[str]) -> ParsedReply:
    """The parsed reply, after checking that the events say the same."""
    events: list[ReplyEvent] = []
    for piece in pieces:
        events.extend(parser.feed(piece))
    reply = parser.finish()
    events.extend(reply.tail_events)
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    ready = [event for event in events if isinstance(event, ToolCallReady)]
    assert text == reply.content
    assert thought == (reply.reasoning or "")
    assert [event.call for event in ready] == list(reply.tool_calls)
    assert [event.index for event in ready] == list(range(len(ready)))
    return reply


def token_pieces(tokenizer: Any, text: str) -> list[str]:
    """The text cut where the tokenizer cuts it (characters never torn)."""
    offsets = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).offsets
    cuts = sorted({0, *(stop for _, stop in offsets), len(text)})
    return [text[start:stop] for start, stop in itertools.pairwise(cuts)]


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
        assert parse_pieces(make(), token_pieces(demo_tokenizer, text)) == whole
        for cut in range(len(text) + 1):
            assert parse_pieces(make(), [text[:cut], text[cut:]]) == whole
        return whole

    return check


@pytest.fixture(scope="session")
def vocabulary(demo_tokenizer: Any) -> Vocabulary:
    """The demo's, with logits a little wider than the tokenizer."""
    return Vocabulary.from_tokenizer(demo_tokenizer, len(demo_tokenizer) + 100)

"""One table form for every dialect, and what is asked of each case: see `check`."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from cachefriendly.events import ReasoningDelta, TextDelta, ToolCallReady
from cachefriendly.messages import Tool
from cachefriendly.tools.dialect import Dialect
from cachefriendly.tools.grammar import GrammarMatcher, Vocabulary
from cachefriendly.tools.stream import ParsedReply, ReplyEvent, ReplyParser

__all__ = ["Case", "check", "parse_pieces", "pieces_by_token", "sample"]

_SEPARATORS = str.maketrans(dict.fromkeys("[],;", " "))

Pieces = Callable[[str, Sequence[str]], list[str]]


@dataclass(frozen=True)
class Case:
    """A reply and what it must be read as.

    ``calls`` are (name, arguments), ``invalid`` a part of the reason of each broken call,
    ``opened``: the prompt opened a block of reasoning.
    """

    text: str
    content: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    invalid: tuple[str, ...] = ()
    reasoning: str | None = None
    opened: bool = False


def check(
    dialect: Dialect,
    tools: Sequence[Tool],
    case: Case,
    by_token: Pieces,
    header: re.Pattern[str] | None = None,
) -> ParsedReply:
    """The case read whole, in every split, and cut off at every place.

    ``header`` matches words that are structure because of the marker they stand behind.
    """

    def parse(pieces: Iterable[str]) -> ParsedReply:
        parser = dialect.parser(id_seed="seed", tools=tools, reasoning_open=case.opened)
        return parse_pieces(parser, pieces)

    text = case.text
    whole = parse([text])
    assert _expected(whole) == (case.content, case.reasoning, list(case.calls))
    assert json.dumps([c.arguments for c in whole.tool_calls]) == json.dumps(
        [arguments for _, arguments in case.calls]
    ), "the values have other types, or another order"
    assert len(whole.invalid_tool_calls) == len(case.invalid), whole.invalid_tool_calls
    for call, reason in zip(whole.invalid_tool_calls, case.invalid, strict=True):
        assert reason in call.error
        assert call.raw in text
    ids = [call.id for call in (*whole.tool_calls, *whole.invalid_tool_calls)]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    assert parse(list(text)) == whole
    assert parse(by_token(text, dialect.markers)) == whole
    for cut in range(len(text) + 1):
        assert parse([text[:cut], text[cut:]]) == whole
        shorter = text[:cut]
        cut_off = parse([shorter])
        assert all(call.raw in shorter for call in cut_off.invalid_tool_calls)
        assert parse([shorter[: cut // 2], shorter[cut // 2 :]]) == cut_off
        said = header.sub("", shorter) if header else shorter
        _check_nothing_lost(shorter, said, cut_off, dialect.markers)
    return whole


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


def pieces_by_token(tokenizer: Any, text: str, markers: Sequence[str] = ()) -> list[str]:
    """The text cut where the tokenizer would cut it if the markers were tokens of it too."""
    offsets = tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).offsets
    cuts = {0, *(stop for _, stop in offsets), len(text)}
    for marker in sorted(markers, key=len):
        start = text.find(marker)
        while start >= 0:
            stop = start + len(marker)
            cuts = {cut for cut in cuts if not start < cut < stop} | {start, stop}
            start = text.find(marker, stop)
    return [text[start:stop] for start, stop in itertools.pairwise(sorted(cuts))]


def _expected(reply: ParsedReply) -> tuple[Any, ...]:
    calls = [(call.name, dict(call.arguments)) for call in reply.tool_calls]
    return reply.content, reply.reasoning, calls


def _check_nothing_lost(text: str, said: str, reply: ParsedReply, markers: Sequence[str]) -> None:
    """Beside whole calls, structure, separators and whitespace, every character is in some part.

    ``said`` is ``text`` without words that are structure.
    """
    raws = [call.raw for call in reply.invalid_tool_calls]
    parts = [reply.reasoning or "", reply.content, *raws]
    given, kept = _letters(said, markers), Counter[str]()
    for part in parts:
        kept += _letters(part, markers)
    assert not kept - _letters(text, ())
    if not reply.tool_calls:
        assert not given - kept, f"lost of {said!r}: {given - kept}"


def _letters(text: str, markers: Sequence[str]) -> Counter[str]:
    for marker in sorted(markers, key=len, reverse=True):
        text = text.replace(marker, "")
    return Counter("".join(text.translate(_SEPARATORS).split()))


def sample(matcher: GrammarMatcher, vocabulary: Vocabulary, seed: int) -> list[int]:
    """Random ids that a grammar admits, to its end; without the stop id."""
    generator = torch.Generator().manual_seed(seed)
    ids: list[int] = []
    while not matcher.finished:
        logits = torch.randn(vocabulary.n_vocab, generator=generator)
        masked = logits.masked_fill(~matcher.allowed(), -torch.inf)
        ids.append(matcher.accept(int(masked.argmax())))
    return [token for token in ids if token not in vocabulary.stop_ids]

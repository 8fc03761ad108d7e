"""What a prompt begins with whatever results its open tool calls will have.

The prompt is built with two results that have nothing in common; what both begin with is certain,
but for tokens at the end that the beginning of another result could merge with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from cachefriendly.errors import RequestError
from cachefriendly.messages import Message
from cachefriendly.prefix import common_prefix
from cachefriendly.prompt.built import BuiltPrompt
from cachefriendly.prompt.tokens import TextTokenizer

__all__ = ["STAND_INS", "certain_part", "possible_orders", "with_results"]

STAND_INS = ("x", '{"y": [0]}')
_STARTS = (
    "a",
    "A",
    "0",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\t",
    '"',
    "'",
    "{",
    "[",
    "<",
    "-",
    "/",
    ".",
    "é",
)


def possible_orders(awaiting: Collection[str]) -> list[tuple[str, ...]]:
    """Orders of results of which one has each call first that can be first.

    A sequence is the order itself; in a set any call may be answered first.
    """
    if isinstance(awaiting, Sequence):
        return [tuple(awaiting)]
    calls = sorted(awaiting)
    return [(first, *(call for call in calls if call != first)) for first in calls]


def with_results(
    messages: Sequence[Message], awaiting: Sequence[str], text: str
) -> tuple[Message, ...]:
    """The conversation with ``text`` as the result of each call named in ``awaiting``.

    Raises:
        RequestError: the newest assistant message made no such call.
    """
    names = dict(_calls_of_newest(messages))
    missing = [call_id for call_id in awaiting if call_id not in names]
    if missing:
        known = ", ".join(repr(call_id) for call_id in names) or "none"
        raise RequestError(
            f"awaiting={list(awaiting)}: the last assistant message made no call {missing[0]!r}; "
            f"its calls are: {known}"
        )
    results = (
        Message("tool", text, tool_call_id=call_id, name=names[call_id]) for call_id in awaiting
    )
    return (*messages, *results)


def _calls_of_newest(messages: Sequence[Message]) -> Iterator[tuple[str, str | None]]:
    newest = next((m for m in reversed(messages) if m.role == "assistant"), None)
    if newest is not None:
        yield from ((call.id, call.name) for call in newest.tool_calls)
        yield from ((call.id, call.name) for call in newest.invalid_tool_calls)


def certain_part(one: BuiltPrompt, other: BuiltPrompt, tokens: TextTokenizer) -> BuiltPrompt:
    """The start that two prompts, equal but for the results, have in common with every other."""
    stop = common_prefix(one.ids, other.ids)
    stop = _unmerged(one, stop, tokens)
    spans = (replace(span, stop=min(span.stop, stop)) for span in one.spans if span.start < stop)
    origin = one.provenance
    return replace(
        one,
        ids=one.ids[:stop],
        text=one.text[: common_prefix(one.text, other.text)],
        spans=tuple(spans),
        provenance=replace(origin, shared=min(origin.shared, stop)),
        snapshots_at=tuple(length for length in one.snapshots_at if length <= stop),
    )


def _unmerged(built: BuiltPrompt, stop: int, tokens: TextTokenizer) -> int:
    """``stop`` without the tokens behind the last boundary that a result's start would change."""
    start = max((span.start for span in built.spans if span.start < stop), default=0)
    if not tokens.whole_text:
        places = range(stop, start, -1)
        start = next((at for at in places if built.ids[at - 1] in tokens.controls.ids), start)
    known, first = built.ids[start:stop], not start
    text = tokens.decode(known) if first else tokens.decode_after(known)
    for beginning in _STARTS:
        if tokens.whole_text:
            ids = tuple(tokens.encode(text + beginning, at_start=first))
        else:
            ids = tokens.encode_stretch(text + beginning, first=first)
        stop = min(stop, start + common_prefix(known, ids))
    return stop

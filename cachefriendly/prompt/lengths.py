"""How many tokens messages take in a prompt, estimated one by one and a little high.

An estimate depends on the message and the template alone, never on recorded ids or on other
messages, so that it is the same in every process and at every call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from cachefriendly.bounded import BoundedMap
from cachefriendly.errors import CacheFriendlyError
from cachefriendly.messages import Message, ToolCall, canonical_json
from cachefriendly.prompt.chain import Link

__all__ = ["MessageLengths"]

Measure: TypeAlias = Callable[[Sequence[Message]], int]
_MEMO_ENTRIES = 200_000
# Where a template refuses the probes: what a turn's markers may take.
_UNKNOWN = 16
_WORD, _TEXT = "a", "a word and another one " * 4


class MessageLengths:
    """Tokens of messages; each is counted once. Thread safe.

    ``count`` gives the tokens of a text, ``measure`` those of a rendered conversation.
    """

    def __init__(self, count: Callable[[str], int], measure: Measure) -> None:
        self._count = count
        self._measure = measure
        self._known_frame: _Frame | None = None
        self._memo: BoundedMap[tuple[bytes, str | None], int] = BoundedMap(_MEMO_ENTRIES)

    def of(self, links: Sequence[Link]) -> list[int]:
        """Tokens of each message with the markers around it."""
        return [self._of(link) for link in links]

    def _of(self, link: Link) -> int:
        key = (link.digest, link.message.reasoning)
        length = self._memo.get(key)
        if length is None:
            length = self._estimate(link.message)
            self._memo.put(key, length)
        return length

    def _estimate(self, message: Message) -> int:
        frame = self._frame()
        texts = [message.content, message.reasoning or "", message.name or ""]
        texts += [raw.raw for raw in message.invalid_tool_calls]
        for made in message.tool_calls:
            texts += [made.name, canonical_json(made.arguments)]
        calls = len(message.tool_calls) + (message.role == "tool")
        said = sum(self._count(text) for text in texts if text)
        return frame.turn + frame.call * calls + frame.times * said

    def _frame(self) -> _Frame:
        if self._known_frame is None:
            self._known_frame = _probe(self._measure, self._count)
        return self._known_frame


class _Frame(NamedTuple):
    """What a turn adds to its texts, what a call or a result adds to that, and how many times a
    text is printed.
    """

    turn: int
    call: int
    times: int


def _probe(measure: Measure, count: Callable[[str], int]) -> _Frame:
    user, answer = Message("user", _WORD), Message("assistant", _WORD)
    call = Message("assistant", "", (ToolCall(_WORD, {}, "call00000"),))
    result = Message("tool", _WORD, tool_call_id="call00000")
    exchange = [user, answer]
    try:
        lengths = [measure(exchange * times) for times in (1, 2, 3)]
        longer = measure([Message("user", _TEXT), Message("assistant", _TEXT)]) - lengths[0]
    except CacheFriendlyError:
        return _Frame(_UNKNOWN, _UNKNOWN, 1)
    turn = max(-(-(after - before) // 2) for before, after in pairwise(lengths))
    times = max(1, round(longer / (2 * (count(_TEXT) - count(_WORD)))))
    try:
        extra = measure([user, call, result, answer]) - lengths[0]
    except CacheFriendlyError:
        return _Frame(turn, _UNKNOWN, times)
    return _Frame(turn, max(-(-extra // 2) - turn, 0) + 1, times)

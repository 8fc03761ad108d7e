"""Which messages of a history that is longer than the context window the model still sees.

A cut is a function of the message list alone: the conversation is gone through from its start, and
wherever it had reached the high mark it is cut at the first turn that brings it under the low mark.
So every process finds the same cut, and a cut stays until the high mark is reached again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from cachefriendly.config import OverflowPolicy
from cachefriendly.errors import ContextOverflow
from cachefriendly.events import Loss, MissReason
from cachefriendly.messages import Message
from cachefriendly.prompt.built import BuiltPrompt
from cachefriendly.prompt.chain import Link
from cachefriendly.prompt.record import Record
from cachefriendly.prompt.transcript import Recognition

__all__ = ["ContextWindow", "Cut", "CutMoved", "turn_starts"]

# The room kept for replies, and the first turn that `sink_window` keeps, as parts of the window.
_REPLY_PART = 4
_SINK_PART = 8
# Estimates that were too low are multiplied, and not by any number: calls that follow each other
# have to find the same one. The last leaves only the newest turn.
_FACTORS = (1.0, 1.5, 2.0, 4.0, 8.0, 1e9)
_EXCERPT = 200


@dataclass(frozen=True, slots=True)
class Cut:
    """The messages that stay, by their number in a request of ``total``."""

    kept: tuple[int, ...]
    total: int

    @classmethod
    def nothing(cls, total: int) -> Cut:
        """Everything stays."""
        return cls(tuple(range(total)), total)

    @property
    def dropped(self) -> int:
        return self.total - len(self.kept)

    def number(self, index: int | None) -> int | None:
        """What the request calls the message that is number ``index`` of those that stay."""
        return None if index is None else self.kept[index]


@dataclass(frozen=True, slots=True)
class CutMoved:
    """``record`` is the previous call of a conversation, and it was cut elsewhere, or not at all.

    ``index`` is the first message that stays, system messages aside, with ``text``.
    """

    record: Record
    index: int
    text: str

    @classmethod
    def of(cls, found: Recognition, links: Sequence[Link]) -> CutMoved | None:
        """From what is recognised in ``links``, the messages that stay."""
        if found.latest is None:
            return None
        before = sum(link.counts for link in found.latest.conversation())
        now = sum(link.counts for link in links[: found.latest_index + 1])
        if before == now:
            return None
        index = next(number for number, link in enumerate(links) if link.counts)
        return cls(found.latest, index, links[index].message.content[:_EXCERPT])

    def loss(self, kept: int) -> Loss:
        """What a report says of it; ``kept`` tokens of the recorded call were not lost."""
        reason, fix = MissReason.HISTORY_CUT, "raise context_window, or shorten the history"
        return Loss(reason, 0, kept, self.index, None, "", self.text, fix)


def turn_starts(messages: Sequence[Message]) -> list[int]:
    """Numbers of the messages a history may begin with: the first behind the system messages at
    the start, and every later user message that no call and its result lie around.
    """
    made: dict[str, int] = {}
    calling = 0
    starts: list[int] = []
    asked = False
    for index, message in enumerate(messages):
        if message.role == "user":
            if asked or not starts:
                starts.append(index)
            asked = True
        elif not starts and message.role != "system":
            starts.append(index)  # a greeting: it belongs to the first question
        if message.role == "tool":
            call = made.get(message.tool_call_id or "", calling)
            while len(starts) > 1 and starts[-1] > call:
                starts.pop()
        names = [call.id for call in message.tool_calls]
        names += [call.id for call in message.invalid_tool_calls]
        if names:
            calling = index
            made.update((name, index) for name in names if name)
    return starts


class ContextWindow:
    """Cuts histories for a window of ``tokens``. Immutable.

    The high mark is the window less ``reply_room``, but at most a quarter of it; the low mark is
    half of the high one.
    """

    def __init__(self, policy: OverflowPolicy, *, tokens: int, reply_room: int) -> None:
        self.tokens = tokens
        self.high = tokens - min(reply_room, tokens // _REPLY_PART)
        self.low = self.high // 2
        self._sink = tokens // _SINK_PART if policy == "sink_window" else 0

    def cut(
        self, messages: Sequence[Message], lengths: Sequence[int], head: int, factor: float = 1
    ) -> Cut:
        """The cut of a history.

        Args:
            lengths: tokens of each message; those of system messages at the start do not count.
            head: tokens of everything else: system messages, tools, generation prompt.
            factor: lengths are multiplied by it.
        """
        starts = turn_starts(messages)
        if not starts:
            return Cut.nothing(len(messages))
        before = list(accumulate((length * factor for length in lengths), initial=0.0))
        walk = _Walk(self, starts, before, head)
        for index in range(starts[0], len(messages)):
            if messages[index].role in ("user", "tool"):
                walk.call(index)
        sink = range(starts[0], walk.sink_stop if walk.start > starts[0] else starts[0])
        kept = (*range(starts[0]), *sink, *range(max(walk.start, sink.stop), len(messages)))
        return Cut(kept, len(messages))

    def sink_stop(self, starts: Sequence[int], before: Sequence[float]) -> int:
        """Behind the first turn, if that is to be kept and short enough."""
        if not self._sink or len(starts) < 2:
            return starts[0]
        return starts[1] if before[starts[1]] - before[starts[0]] <= self._sink else starts[0]

    def fit(
        self,
        messages: Sequence[Message],
        lengths: Sequence[int],
        head: int,
        build: Callable[[Cut], BuiltPrompt],
    ) -> BuiltPrompt:
        """The prompt of a history, cut so that it leaves a token of room for a reply.

        Raises:
            ContextOverflow: the newest turn does not fit by itself.
        """
        tried: Cut | None = None
        for factor in _FACTORS:
            cut = self.cut(messages, lengths, head, factor)
            if cut == tried:
                continue
            built, tried = build(cut), cut
            if len(built.ids) < self.tokens:
                return built
        raise self._refusal(messages, lengths, head)

    def _refusal(
        self, messages: Sequence[Message], lengths: Sequence[int], head: int
    ) -> ContextOverflow:
        newest = range((turn_starts(messages) or [0])[-1], len(messages))
        largest = max(newest, key=lengths.__getitem__)
        what = f"message {largest} ({messages[largest].role}) has about {lengths[largest]} tokens"
        if head > lengths[largest]:
            what = f"system message and tools have about {head} tokens"
        return ContextOverflow(
            f"{what}; with the rest of the newest turn, which is never cut, they do not fit into "
            f"the context window of {self.tokens}; shorten it or raise context_window"
        )


class _Walk:
    """The cut as it was at every call of the conversation so far.

    ``before[i]`` is the length of all messages before ``i``.
    """

    def __init__(
        self, window: ContextWindow, starts: Sequence[int], before: Sequence[float], head: int
    ) -> None:
        self.start = starts[0]
        self.sink_stop = window.sink_stop(starts, before)
        self._window = window
        self._starts = starts
        self._before = before
        self._bounds = [before[start] for start in starts]
        self._head = head

    def needed(self, start: int, stop: int) -> float:
        """Tokens of a prompt of the messages in [start, stop) and all that is kept anyway."""
        if start > self._starts[0]:
            return self._fixed() + self._before[stop] - self._before[max(start, self.sink_stop)]
        return self._head + self._before[stop] - self._before[start]

    def call(self, index: int) -> None:
        """A call whose last message is ``index``: cut if it reached the high mark."""
        if self.needed(self.start, index + 1) <= self._window.high:
            return
        least = self._before[index + 1] + self._fixed() - self._window.low
        first = bisect_left(self._bounds, least)
        newest = bisect_left(self._starts, index + 1) - 1
        self.start = max(self.start, self._starts[min(first, newest)])

    def _fixed(self) -> float:
        return self._head + self._before[self.sink_stop] - self._before[self._starts[0]]

"""Turn a reply that arrives piece by piece into text, reasoning and tool calls.

Whatever the split of the text into pieces, the parsed reply is the same. Text is held back only
while it may still turn out to be structure.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from cachefriendly.events import ReasoningDelta, TextDelta, ToolCallReady
from cachefriendly.messages import InvalidToolCall, ToolCall
from cachefriendly.tools.call_json import BrokenCall, read_call

__all__ = [
    "THINK",
    "THINK_CLOSE",
    "THINK_OPEN",
    "ParsedReply",
    "ReadCall",
    "Reasoning",
    "ReplyEvent",
    "ReplyParser",
    "held_back",
]

ReplyEvent: TypeAlias = TextDelta | ReasoningDelta | ToolCallReady
ReadCall: TypeAlias = Callable[[], tuple[str, Mapping[str, Any]]]
"""Gives a call's name and arguments, or raises `BrokenCall`."""

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The texts around the reasoning that a reply begins with."""

    open: str
    close: str

    @property
    def texts(self) -> tuple[str, str]:
        return self.open, self.close

    def left_open(self, prompt: str) -> bool:
        """Whether a prompt opens reasoning and leaves it open."""
        return prompt.rfind(self.open) > prompt.rfind(self.close)


THINK = Reasoning(THINK_OPEN, THINK_CLOSE)


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """A whole reply. ``tail_events`` are the events that only the end of the reply settled."""

    content: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    invalid_tool_calls: tuple[InvalidToolCall, ...] = ()
    tail_events: tuple[ReplyEvent, ...] = field(default=(), compare=False)


def held_back(text: str, *markers: str) -> int:
    """How many characters at the end of ``text`` may be the beginning of one of the markers."""
    longest = min(len(text), max(map(len, markers), default=1) - 1)
    for size in range(longest, 0, -1):
        end = text[-size:]
        if any(len(marker) > size and marker.startswith(end) for marker in markers):
            return size
    return 0


class ReplyParser(ABC):
    """Incremental parser of one reply; a dialect says what a call looks like.

    A block of ``reasoning`` at the start (or one that the generation prompt opened:
    ``reasoning_open``) is kept apart, without the whitespace around it; an unclosed block reaches
    to the end of the reply. With ``reasoning=None`` the whole reply is the dialect's to read.
    The `TextDelta` texts add up to the content.
    """

    def __init__(
        self, *, id_seed: str, reasoning: Reasoning | None = THINK, reasoning_open: bool = False
    ) -> None:
        self._id_seed = id_seed
        self._opening, self._closing = (reasoning or THINK).texts
        self._pending = ""
        self._stage: Literal["start", "reasoning", "answer"] = "answer"
        if reasoning is not None:
            self._stage = "reasoning" if reasoning_open else "start"
        self._skip_space = self._stage == "reasoning"
        self._events: list[ReplyEvent] = []
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[ToolCall] = []
        self._invalid: list[InvalidToolCall] = []

    def feed(self, text: str) -> list[ReplyEvent]:
        """Take more text; returns what it settled."""
        self._pending += text
        self._advance(final=False)
        return self._drain()

    def finish(self) -> ParsedReply:
        """The reply is over: settle what was held back."""
        self._advance(final=True)
        tail = tuple(self._drain())
        return ParsedReply(
            content="".join(self._content),
            reasoning="".join(self._reasoning) or None,
            tool_calls=tuple(self._calls),
            invalid_tool_calls=tuple(self._invalid),
            tail_events=tail,
        )

    @abstractmethod
    def _answer(self, final: bool) -> None:
        """Consume ``self._pending`` as far as it is settled; wholly when ``final``."""

    @property
    def _seen_call(self) -> bool:
        return bool(self._calls or self._invalid)

    def _emit_text(self, text: str) -> None:
        if text:
            self._content.append(text)
            self._events.append(TextDelta(text))

    def _emit_reasoning(self, text: str) -> None:
        if text:
            self._reasoning.append(text)
            self._events.append(ReasoningDelta(text))

    def _emit_call(self, body: str, raw: str, *, whole: bool = True) -> None:
        """Record the call in ``body``, a JSON object; ``raw`` is its text as generated."""
        self._emit(lambda: read_call(body), raw, whole=whole)

    def _emit(self, read: ReadCall, raw: str, *, whole: bool = True, call_id: str = "") -> None:
        """Record the call that ``read`` reads from ``raw``, its text as generated.

        ``call_id``: the id that the model wrote; it is made one of our own where it is missing
        or taken. Not ``whole``: a broken call is broken because the reply ended inside it.
        """
        number = len(self._calls) + len(self._invalid)
        taken = {call.id for call in self._calls} | {call.id for call in self._invalid}
        if not call_id or call_id in taken:
            call_id = self._new_id(_digest(self._id_seed, number))
        try:
            name, arguments = read()
        except BrokenCall as problem:
            reason = str(problem) if whole else f"the reply ended inside the call ({problem})"
            self._invalid.append(InvalidToolCall(raw, reason, name=problem.name, id=call_id))
            return
        call = ToolCall(name, arguments, id=call_id)
        self._events.append(ToolCallReady(index=len(self._calls), call=call))
        self._calls.append(call)

    def _emit_outcome(
        self, outcome: tuple[str, Mapping[str, Any]] | BrokenCall, raw: str, *, whole: bool = True
    ) -> None:
        """Record a call that was read already, or why there is none."""

        def read() -> tuple[str, Mapping[str, Any]]:
            if isinstance(outcome, BrokenCall):
                raise outcome
            return outcome

        self._emit(read, raw, whole=whole)

    def _new_id(self, digest: str) -> str:
        """An id for a call from a hexadecimal digest that no other call of the reply has."""
        return "call_" + digest

    def _drain(self) -> list[ReplyEvent]:
        events, self._events = self._events, []
        return events

    def _advance(self, final: bool) -> None:
        if self._stage == "start":
            self._look_for_reasoning(final)
        if self._skip_space:
            self._pending = self._pending.lstrip()
            self._skip_space = not self._pending
        if self._stage == "reasoning":
            self._reason(final)
        if self._stage == "answer" and not self._skip_space:
            self._answer(final)

    def _look_for_reasoning(self, final: bool) -> None:
        text = self._pending.lstrip()
        if text.startswith(self._opening):
            self._pending = text.removeprefix(self._opening)
            self._stage, self._skip_space = "reasoning", True
        elif final or not self._opening.startswith(text):
            self._stage = "answer"

    def _reason(self, final: bool) -> None:
        thought, close, rest = self._pending.partition(self._closing)
        held = 0 if close or final else held_back(thought, self._closing)
        settled = thought[: len(thought) - held].rstrip()
        self._emit_reasoning(settled)
        if close:
            self._pending = rest.lstrip()
            self._stage, self._skip_space = "answer", not self._pending
        else:
            self._pending = "" if final else thought[len(settled) :]


def _digest(seed: str, number: int) -> str:
    payload = f"{seed}\n{number}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(payload, digest_size=12).hexdigest()

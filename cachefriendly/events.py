"""What a call yields while it runs and leaves when it is done."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeAlias

from cachefriendly.messages import InvalidToolCall, Message, ToolCall

__all__ = [
    "CacheReport",
    "ChatEvent",
    "ChatResult",
    "FinishReason",
    "Finished",
    "Loss",
    "MissReason",
    "RawDelta",
    "ReasoningDelta",
    "TextDelta",
    "ToolCallReady",
]

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]


class MissReason(str, Enum):
    """Why known tokens were forwarded again: a closed list, each explained in the docs."""

    FIRST_CALL = "first call"
    SYSTEM_CHANGED = "system prompt changed"
    TOOLS_CHANGED = "tools changed"
    TEMPLATE_REWROTE_HISTORY = "template rewrote history"
    MESSAGE_EDITED = "message edited"
    MESSAGE_REMOVED = "message removed"
    VOLATILE_FIELD = "volatile field"
    EVICTED = "evicted"
    EXPIRED = "expired"
    OTHER_FINGERPRINT = "other fingerprint"
    COMPUTED_ELSEWHERE = "computed elsewhere"
    ARGUMENTS_CHANGED = "template arguments or clock changed"
    ROPE_REGIME_CHANGED = "rope regime changed"
    NOT_CROPPABLE = "not croppable"
    HISTORY_CUT = "history cut to fit"
    REUSE_OFF = "reuse is off"


@dataclass(frozen=True, slots=True)
class Loss:
    """One stretch of known tokens that had to be forwarded again, and what would have kept it."""

    reason: MissReason
    tokens_lost: int
    first_differing_token: int
    message_index: int | None = None
    field: str | None = None
    before: str = ""
    after: str = ""
    fix: str = ""

    def __str__(self) -> str:
        message = "" if self.message_index is None else f"message {self.message_index}"
        where = " ".join(part for part in (message, self.field) if part)
        change = f"{self.before!r} became {self.after!r}" if self.before or self.after else ""
        kind = self.reason.value + (f" ({where})" if where else "")
        facts = "; ".join(part for part in (kind, change, self.fix) if part)
        return f"{self.tokens_lost} tokens lost: {facts}"


@dataclass(frozen=True, slots=True)
class CacheReport:
    """What one call cost, in tokens and seconds.

    ``prompt_tokens == reused_tokens + prefilled_tokens``. ``background_prefilled_tokens`` were
    forwarded by `Engine.prefill` since the last call of this session; they count as reused here.
    ``generated_tokens`` counts sampled ids, the stop token included. ``forwarded_tokens`` is what
    entered the model's embedding for this call: ``prefilled_tokens`` plus the generated ids that
    were fed back. ``dropped_messages`` of the request were left out by the overflow policy.
    ``prefix_tokens`` come before the first message that is no system message: a number that varies
    within a conversation means volatile text there; 0 where it cannot be told. ``namespace`` and
    ``session`` are those of the request, ``handle`` that of the reply: whose call it was.
    """

    prompt_tokens: int
    reused_tokens: int
    prefilled_tokens: int
    generated_tokens: int
    forwarded_tokens: int
    background_prefilled_tokens: int = 0
    drafted_tokens: int = 0
    rejected_tokens: int = 0
    dropped_messages: int = 0
    prefix_tokens: int = 0
    ttft_s: float = 0.0
    total_s: float = 0.0
    losses: tuple[Loss, ...] = ()
    namespace: str = ""
    session: str | None = None
    handle: str = ""

    def __str__(self) -> str:
        """For people: a line of numbers, and a line for each loss that cost tokens."""
        counts = (
            (self.background_prefilled_tokens, "of the reused prefilled in the background"),
            (self.dropped_messages, "messages left out"),
        )
        facts = [
            f"{self.prompt_tokens} prompt tokens: {self.reused_tokens} reused, "
            f"{self.prefilled_tokens} prefilled",
            f"{self.generated_tokens} generated",
            *(f"{count} {what}" for count, what in counts if count),
            f"first token after {self.ttft_s:.2f} s, done after {self.total_s:.2f} s",
        ]
        lines = ["; ".join(facts), *(str(loss) for loss in self.losses if loss.tokens_lost)]
        return "\n  ".join(lines)


@dataclass(frozen=True, slots=True)
class ChatResult:
    """The finished reply; ``message.handle`` names it, ``output_ids`` exclude the stop token."""

    message: Message
    finish_reason: FinishReason
    report: CacheReport
    prompt_ids: tuple[int, ...] = field(repr=False)
    output_ids: tuple[int, ...] = field(repr=False)

    @property
    def invalid_tool_calls(self) -> tuple[InvalidToolCall, ...]:
        return self.message.invalid_tool_calls


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New answer text; the deltas of a call add up to ``result.message.content``."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """New reasoning text (between a model's think markers), kept apart from the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class RawDelta:
    """New text as it was generated, unfinished calls included; comes before what it is read as.

    Only where the request says ``raw_text``.
    """

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallReady:
    """A whole call, the moment its last character was generated."""

    index: int
    call: ToolCall


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of every call that was not cancelled and did not fail."""

    result: ChatResult


ChatEvent: TypeAlias = TextDelta | ReasoningDelta | RawDelta | ToolCallReady | Finished

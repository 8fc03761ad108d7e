"""Where a conversation stops being the recorded one: which message was edited or removed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cachefriendly.events import Loss, MissReason
from cachefriendly.messages import Message, canonical_json
from cachefriendly.prefix import common_prefix
from cachefriendly.prompt.chain import Link, same_reasoning
from cachefriendly.prompt.record import Record

__all__ = ["Departure", "excerpts", "find_departure"]

_FIELDS = ("role", "content", "tool_calls", "invalid_tool_calls", "name", "reasoning")
_EXCERPT = 200
_LEAD = 40


@dataclass(frozen=True, slots=True)
class Departure:
    """The first message that differs from ``record``, at ``index`` of the new conversation.

    ``removed``: ``after`` stood further behind in the recorded conversation, so ``before`` and
    perhaps more is gone. ``overlap`` counts new messages that the recorded conversation has too.
    """

    record: Record
    index: int
    before: Message
    after: Message
    removed: bool
    overlap: int

    def loss(self, kept: int) -> Loss:
        """What a report says of it; ``kept`` tokens of the recorded call were not lost."""
        if self.removed:
            reason, field, fix = MissReason.MESSAGE_REMOVED, None, "trim rarely, in big steps"
        else:
            reason, field = MissReason.MESSAGE_EDITED, _changed_field(self.before, self.after)
            fix = "send earlier messages back unchanged"
        shown = "content" if field in (None, "role") else field
        before, after = excerpts(_text_of(self.before, shown), _text_of(self.after, shown))
        return Loss(reason, 0, kept, self.index, field, before, after, fix)


def find_departure(
    links: Sequence[Link], relatives: Sequence[Record], recognised: Collection[int]
) -> Departure | None:
    """How ``links`` differ from the relative they have most messages in common with.

    Replies numbered ``recognised`` are as recorded, if not in every relative.

    None for a conversation that goes on, is known as a whole, or is a branch: new messages and no
    reply behind a known start. A branch loses nothing that it could have used.
    """
    new = [(index, link) for index, link in enumerate(links) if link.counts]
    found: list[Departure] = []
    for record in relatives:
        departure = _departure_from(record, new, recognised)
        if departure is None:
            return None
        found.append(departure)
    return max(found, key=lambda departure: departure.overlap, default=None)


def _departure_from(
    record: Record, new: Sequence[tuple[int, Link]], recognised: Collection[int]
) -> Departure | None:
    old = [link for link in record.conversation() if link.counts]
    digests = [link.digest for link in old]
    known = frozenset(digests)
    common = common_prefix(digests, [link.digest for _, link in new])
    for number, (recorded, (index, link)) in enumerate(zip(old[:common], new, strict=False)):
        if index not in recognised and not same_reasoning(link.message, recorded.message):
            common = number
            break
    replies = any(link.message.role == "assistant" for _, link in new[common:])
    if common == len(old) or not replies:
        return None
    index, link = new[common]
    return Departure(
        record=record,
        index=index,
        before=old[common].message,
        after=link.message,
        removed=link.digest in digests[common + 1 :],
        overlap=sum(link.digest in known for _, link in new),
    )


def excerpts(before: str, after: str) -> tuple[str, str]:
    """Both texts from a little before their first difference on."""
    start = max(0, common_prefix(before, after) - _LEAD)
    return before[start : start + _EXCERPT], after[start : start + _EXCERPT]


def _changed_field(before: Message, after: Message) -> str:
    changed = (field for field in _FIELDS if _text_of(before, field) != _text_of(after, field))
    return next(changed, "content")


def _text_of(message: Message, field: str) -> str:
    """As far as it counts for the identity of a message (see `message_digest`)."""
    if field == "tool_calls":
        return canonical_json([[call.name, call.arguments] for call in message.tool_calls])
    if field == "invalid_tool_calls":
        return "\n".join(call.raw.strip() for call in message.invalid_tool_calls)
    text = str(getattr(message, field) or "")
    return text.strip() if message.role == "assistant" and field == "content" else text

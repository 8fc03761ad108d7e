"""Messages as a template has to see them: known replies as generated, reasoning in its field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cachefriendly.messages import Message
from cachefriendly.prompt.disguise import Disguise
from cachefriendly.prompt.record import Record

__all__ = ["disguised", "restored"]


def restored(messages: Sequence[Message], known: Mapping[int, Record]) -> tuple[Message, ...]:
    """Known replies as they were generated; call ids as the caller has them now."""
    return tuple(
        _with_ids_of(known[index].reply, message) if index in known else message
        for index, message in enumerate(messages)
    )


def _with_ids_of(recorded: Message, message: Message) -> Message:
    pairs = zip(recorded.tool_calls, message.tool_calls, strict=True)
    return replace(recorded, tool_calls=tuple(replace(a, id=b.id) for a, b in pairs))


def disguised(messages: Sequence[Message], disguise: Disguise) -> list[Message]:
    """Control tokens in disguise, and reasoning where the template looks for it."""
    return [disguise.message(_thought_apart(message, disguise)) for message in messages]


def _thought_apart(message: Message, disguise: Disguise) -> Message:
    """Reasoning that a foreign reply carries in its text goes to its own field.

    Templates look for the marker to cut the reasoning off; disguised they would not find it.
    """
    close = "</think>"
    apart = message.role == "assistant" and message.reasoning is None
    if not apart or close not in disguise.placeholders or close not in message.content:
        return message
    thought = message.content.partition(close)[0].rpartition("<think>")[2]
    content = message.content.rpartition(close)[2]
    return replace(message, content=content.lstrip("\n"), reasoning=thought.strip("\n"))

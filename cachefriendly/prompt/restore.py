"""Messages as a template has to see them: known replies as generated, reasoning in its field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cachefriendly.messages import Message
from cachefriendly.prompt.disguise import Disguise
from cachefriendly.prompt.record import Record
from cachefriendly.tools.stream import Reasoning

__all__ = ["restored", "thoughts_apart"]


def restored(messages: Sequence[Message], known: Mapping[int, Record]) -> tuple[Message, ...]:
    """Known replies as they were generated; call ids as the caller has them now."""
    return tuple(
        _with_ids_of(known[index].reply, message) if index in known else message
        for index, message in enumerate(messages)
    )


def _with_ids_of(recorded: Message, message: Message) -> Message:
    pairs = zip(recorded.tool_calls, message.tool_calls, strict=True)
    return replace(recorded, tool_calls=tuple(replace(a, id=b.id) for a, b in pairs))


def thoughts_apart(
    messages: Sequence[Message],
    disguise: Disguise,
    think: Reasoning | None,
    *,
    open_start: bool,
) -> list[Message]:
    """Reasoning that a foreign reply carries in its text goes to its own field.

    Templates look for the marker to cut the reasoning off; disguised they would not find it.
    ``open_start``: a reply may begin inside a block of reasoning that its prompt opened.
    """
    if think is None or think.close not in disguise.placeholders:
        return list(messages)
    return [_thought_apart(message, think, open_start) for message in messages]


def _thought_apart(message: Message, think: Reasoning, open_start: bool) -> Message:
    """Only where the text starts with reasoning: elsewhere the markers are spoken of."""
    thought, closed, rest = message.content.partition(think.close)
    if message.role != "assistant" or message.reasoning is not None or not closed:
        return message
    before, opened, inside = thought.partition(think.open)
    if before.strip() if opened else not open_start:
        return message
    reasoning = (inside if opened else thought).strip("\n")
    return replace(message, content=rest.lstrip("\n"), reasoning=reasoning)

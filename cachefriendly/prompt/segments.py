"""Where in a rendered prompt each known reply sits, found by rendering it with stand-ins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cachefriendly.errors import TemplateError
from cachefriendly.messages import Message, ToolCall
from cachefriendly.prompt.stage import Stage

__all__ = ["Segments", "find_segments"]

_FIRST_MARKER = 0x10F000


@dataclass(frozen=True, slots=True)
class Segments:
    """A rendered prompt as ``between[0] block[0] between[1] ... block[n-1] between[n]``.

    ``block[k]`` is reply k as the template prints it, without turn header and turn close. Where
    ``open_start[k]``, its beginning could not be told from the header and lies in ``between[k]``.
    """

    between: tuple[str, ...]
    blocks: tuple[str, ...]
    open_start: tuple[bool, ...]


def find_segments(
    stage: Stage,
    text: str,
    messages: Sequence[Message],
    replies: Sequence[int],
    *,
    generation_prompt: bool,
) -> Segments | None:
    """Segment ``text``, the rendering of ``messages``, at the messages numbered ``replies``.

    Each is first replaced by a plain reply that is one fresh character; where a template wants
    calls before results, only the name of the first call. None: this template cannot be segmented.
    """
    marker = _fresh(text)
    plain = {index: Message("assistant", marker) for index in replies}
    calling = {index: _mark(messages[index], marker) for index in replies}
    marks_calls = [bool(messages[index].tool_calls) for index in replies]
    attempts = [(plain, [False] * len(replies)), (calling, marks_calls)]
    for stand_ins, in_call in attempts[: 2 if any(marks_calls) else 1]:
        pattern = _render_with(stage, messages, stand_ins, generation_prompt)
        between = pattern.split(marker)
        if len(between) != len(replies) + 1:
            continue
        spans = _locate(text, between)
        if spans is not None:
            return _close_calls(text, spans, in_call, stage.setting.features.close)
    return None


def _fresh(text: str) -> str:
    code = _FIRST_MARKER
    while chr(code) in text:
        code += 1
    return chr(code)


def _mark(message: Message, marker: str) -> Message:
    if not message.tool_calls:
        return Message("assistant", marker)
    first, *others = message.tool_calls
    calls = (ToolCall(marker, first.arguments, first.id), *others)
    return replace(message, tool_calls=calls)


def _render_with(
    stage: Stage,
    messages: Sequence[Message],
    stand_ins: Mapping[int, Message],
    generation_prompt: bool,
) -> str:
    replaced = [stand_ins.get(index, message) for index, message in enumerate(messages)]
    try:
        return stage.render(replaced, generation_prompt=generation_prompt)
    except TemplateError:
        return ""


def _locate(text: str, between: Sequence[str]) -> list[tuple[int, int]] | None:
    """Intervals of ``text`` that ``between`` occupies, in order; None unless there is one way.

    From the left each part is taken as early as possible, from the right as late as possible;
    there is exactly one way when both agree.
    """
    if not text.startswith(between[0]) or not text.endswith(between[-1]):
        return None
    starts, position = [0], len(between[0])
    for part in between[1:-1]:
        start = text.find(part, position)
        if start < 0:
            return None
        starts.append(start)
        position = start + len(part)
    last = len(text) - len(between[-1])
    if last < position:
        return None
    starts.append(last)
    for part, start, after in zip(between[-2:0:-1], starts[-2:0:-1], starts[:1:-1], strict=True):
        if text.rfind(part, 0, after) != start:
            return None
    return [(start, start + len(part)) for start, part in zip(starts, between, strict=True)]


def _close_calls(
    text: str, spans: list[tuple[int, int]], in_call: Sequence[bool], close: str
) -> Segments | None:
    """Extend the blocks that were marked inside a call up to the turn close."""
    between, blocks, start = [], [], 0
    for (_, left), (right, limit), calls in zip(spans, spans[1:], in_call, strict=False):
        stop = text.find(close, right, limit) if calls else right
        if stop < 0 or (calls and not close):
            return None
        between.append(text[start:left])
        blocks.append(text[left:stop])
        start = stop
    return Segments((*between, text[start:]), tuple(blocks), tuple(in_call))

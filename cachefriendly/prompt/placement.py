"""Where in a rendered prompt each known reply sits, found by rendering it with stand-ins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from cachefriendly.errors import TemplateError
from cachefriendly.messages import Message, ToolCall
from cachefriendly.prompt.disguise import no_fresh_character
from cachefriendly.prompt.rendering import Rendering
from cachefriendly.prompt.texts import texts_of_request

__all__ = ["Placement", "find_placement"]

_MARKERS = range(0x10FFFD, 0xFFFFF, -1)


@dataclass(frozen=True, slots=True)
class Placement:
    """A rendered prompt as ``between[0] block[0] between[1] ... block[n-1] between[n]``.

    ``block[k]`` is message ``replies[k]`` as the template prints it, without turn header and turn
    close. Where ``open_start[k]``, its beginning could not be told from the header and lies in
    ``between[k]``.
    """

    replies: tuple[int, ...]
    between: tuple[str, ...]
    blocks: tuple[str, ...]
    open_start: tuple[bool, ...]


def find_placement(
    rendering: Rendering,
    text: str,
    messages: Sequence[Message],
    replies: Sequence[int],
    *,
    add_generation_prompt: bool,
) -> Placement | None:
    """Take ``text`` apart, the rendering of ``messages``, at the messages numbered ``replies``.

    Each is first replaced by a plain reply that is a fresh character of its own; where a template
    wants calls before results, only the name of the last call is replaced, and where it heads
    replies without reasoning otherwise than those with it, only their content. None: this
    template cannot be taken apart.

    Raises:
        RequestError: the text uses the characters that replies could be marked with.
    """
    markers = _fresh(text, len(replies), messages)
    for stand_ins, called in _stand_ins(messages, dict(zip(replies, markers, strict=True))):
        pattern = _render_with(rendering, messages, stand_ins, add_generation_prompt)
        between = _split(pattern, markers, called)
        spans = _locate(text, between) if between else None
        if spans is not None:
            inside = [stand_ins[i].reasoning or stand_ins[i].tool_calls for i in replies]
            open_start = tuple(map(bool, inside))
            return _placement(text, replies, spans, called, open_start, _closes(rendering))
    return None


def _stand_ins(
    messages: Sequence[Message], marked: Mapping[int, str]
) -> Iterator[tuple[dict[int, Message], list[str | None]]]:
    """What to put for the marked replies, plainest first, and the names whose markers it holds."""
    yield {i: Message("assistant", marker) for i, marker in marked.items()}, [None] * len(marked)
    names = [messages[i].tool_calls[-1].name if messages[i].tool_calls else None for i in marked]
    if any(names):
        yield {i: _mark(messages[i], marker) for i, marker in marked.items()}, names
    if any(messages[i].reasoning for i in marked):
        thinking = {i: _mark(messages[i], m, thought=True) for i, m in marked.items()}
        yield thinking, names


def _fresh(text: str, count: int, messages: Sequence[Message]) -> list[str]:
    used = set(text)
    unused = (chr(code) for code in _MARKERS if chr(code) not in used)
    fresh = list(islice(unused, count))
    if len(fresh) < count:
        raise no_fresh_character(texts_of_request(messages, (), {}))
    return fresh


def _mark(message: Message, marker: str, *, thought: bool = False) -> Message:
    if not message.tool_calls:
        return Message("assistant", marker, reasoning=message.reasoning if thought else None)
    *others, last = message.tool_calls
    calls = (*others, ToolCall(marker, last.arguments, last.id))
    return replace(message, tool_calls=calls)


def _split(pattern: str, markers: Sequence[str], called: Sequence[str | None]) -> list[str] | None:
    """Text between the markers, each of which must occur once, in order.

    Only a marked name may come again, where a template heads a result with its call's name.
    """
    names = dict(zip(markers, called, strict=True))
    parts = re.split(f"([{''.join(markers)}])", pattern)
    between = [parts[0]]
    for marker, text in zip(parts[1::2], parts[2::2], strict=True):
        if len(between) <= len(markers) and marker == markers[len(between) - 1]:
            between.append(text)
            continue
        name = names[marker]
        if name is None or marker not in markers[: len(between) - 1]:
            return None
        between[-1] += name + text
    return between if len(between) == len(markers) + 1 else None


def _render_with(
    rendering: Rendering,
    messages: Sequence[Message],
    stand_ins: Mapping[int, Message],
    add_generation_prompt: bool,
) -> str:
    replaced = [stand_ins.get(index, message) for index, message in enumerate(messages)]
    try:
        return rendering.render(replaced, add_generation_prompt=add_generation_prompt)
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
    for number in range(len(between) - 2, 0, -1):
        if text.rfind(between[number], 0, starts[number + 1]) != starts[number]:
            return None
    return [(start, start + len(part)) for start, part in zip(starts, between, strict=True)]


def _placement(
    text: str,
    replies: Sequence[int],
    spans: Sequence[tuple[int, int]],
    called: Sequence[str | None],
    open_start: tuple[bool, ...],
    closes: Sequence[str],
) -> Placement | None:
    """The blocks lie between ``spans``; one marked inside a call goes on up to the turn close."""
    between, blocks, start = [], [], 0
    for number, name in enumerate(called):
        left = spans[number][1]
        stop, limit = spans[number + 1]
        if name is not None:
            found = (text.find(close, stop, limit) for close in closes)
            stop = next((place for place in found if place >= 0), -1)
        if stop < 0:
            return None
        between.append(text[start:left])
        blocks.append(text[left:stop])
        start = stop
    return Placement(tuple(replies), (*between, text[start:]), tuple(blocks), open_start)


def _closes(rendering: Rendering) -> list[str]:
    """What may end a turn with calls: its own close, that of a reply, the last token of that."""
    features = rendering.prepared.features
    close = features.close
    tail = ""
    for piece, control_id in rendering.prepared.controls.split(close):
        tail = piece if control_id is not None else tail + piece
    return [part for part in (features.call_close, close, tail) if part]

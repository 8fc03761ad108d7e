"""Which reads a model's replies: its dialect, or the response template of its tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from cachefriendly.messages import Tool, ToolCall
from cachefriendly.tools.dialect import Dialect, dialect_for
from cachefriendly.tools.dialects.tags import TagDialect
from cachefriendly.tools.native import NativeDialect
from cachefriendly.tools.response_dialect import ResponseTemplateDialect
from cachefriendly.tools.response_template import ResponseTemplate
from cachefriendly.tools.stream import ReplyEvent

__all__ = ["dialect_of", "preferred", "verdict"]


def dialect_of(tokenizer: Any, chat: str) -> Dialect:
    """The dialect of a tokenizer's chat template, which its response template may know better."""
    dialect = dialect_for(chat)
    source = getattr(tokenizer, "response_template", None)
    if not isinstance(source, Mapping) or not isinstance(dialect, NativeDialect):
        return dialect
    return preferred(source, dialect, chat)


def preferred(source: Mapping[str, Any] | None, dialect: NativeDialect, chat: str) -> NativeDialect:
    """The response template's dialect where it serves at least as well, else ``dialect``."""
    if source is None:
        return dialect
    try:
        template = ResponseTemplate(source)
    except (ValueError, TypeError, KeyError, AttributeError):
        return dialect
    known = dialect.speaks(chat)  # else it is the fallback
    base = dialect if known else replace(dialect, reasoning=template.reasoning)
    other = ResponseTemplateDialect(
        reasoning=base.reasoning, base=base, template=template, known=known
    )
    return other if not known or verdict(other, dialect) is None else dialect


def verdict(other: NativeDialect, ours: NativeDialect) -> str | None:
    """The first probe that the two dialects read differently, or at another moment; None: alike."""
    for title, text in _probes(ours):
        if _reading(other, text) != _reading(ours, text):
            return title
    return None


def _probes(ours: NativeDialect) -> Iterator[tuple[str, str]]:
    one = ToolCall("first", {"text": 'é "<b>" {1}\n', "number": 1, "inner": {"list": [None, True]}})
    call = ours.render_calls([one])
    thought = (
        "".join((ours.reasoning.open, "\nHm.\n", ours.reasoning.close)) if ours.reasoning else ""
    )
    middle = call.find("first")
    yield "text", "Words, and more.\n"
    yield "one call", call
    yield "no arguments", ours.render_calls([ToolCall("first", {})])
    yield "two calls", ours.render_calls([one, ToolCall("second", {})])
    yield "text around a call", f"Words.\n{call}\nWords."
    yield "reasoning before", f"{thought}Words.\n{call}"
    yield "malformed call", call.replace("1", "1}", 1)
    yield "cut inside a call", call[: middle + 8]
    if isinstance(ours, TagDialect):
        yield "an argument that is not closed", call.replace(ours.text.value_end, "", 1)
    yield "a marker in a string", ours.render_calls([ToolCall("first", {"text": ours.markers[1]})])


def _reading(dialect: NativeDialect, text: str) -> tuple[Any, ...]:
    """The reply, what of it was kept as broken, and after how many characters each call came."""
    parser = dialect.parser(id_seed="", tools=[Tool("first", "", {}), Tool("second", "", {})])
    moments = []
    for number, character in enumerate(text):
        moments += [number for event in parser.feed(character) if _is_call(event)]
    reply = parser.finish()
    calls = [(call.name, dict(call.arguments)) for call in reply.tool_calls]
    broken = [call.raw.strip() for call in reply.invalid_tool_calls]
    return reply.content, reply.reasoning, calls, broken, moments


def _is_call(event: ReplyEvent) -> bool:
    return not hasattr(event, "text")

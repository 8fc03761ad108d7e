"""Replies read by transformers' own parser, where the tokenizer carries a response template.

transformers 5.24 and later. The parser finds the regions of a reply; what a call's region holds is
read behind it, so that a malformed call is data instead of an error in the middle of a stream.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from cachefriendly.errors import SchemaError
from cachefriendly.messages import Tool, ToolCall
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.call_json import BrokenCall, as_arguments
from cachefriendly.tools.dialect import Dialect, dialect_for
from cachefriendly.tools.dialects.tags import TagDialect
from cachefriendly.tools.native import NativeDialect
from cachefriendly.tools.stream import ParsedReply, Reasoning, ReplyEvent, ReplyParser
from cachefriendly.tools.typed import argument_schema, typed_value

__all__ = [
    "ResponseTemplate",
    "ResponseTemplateDialect",
    "ResponseTemplateParser",
    "dialect_of",
    "preferred",
    "verdict",
]

CONTENT, CALLS = "content", "tool_calls"
REASONING = ("reasoning_content", "reasoning", "thinking")
_PACKAGE = "transformers.utils.chat_parsing"


class ResponseTemplate:
    """A tokenizer's response template, split into regions (transformers' work) and values.

    Raises at construction:
        ValueError: transformers refuses it, is too old, or it has regions of another kind.
    """

    def __init__(self, source: Mapping[str, Any]) -> None:
        try:
            regions = importlib.import_module(f"{_PACKAGE}.response_parser")
            templates = importlib.import_module(f"{_PACKAGE}.response_templates")
            values = importlib.import_module(f"{_PACKAGE}.content_parsers")
        except ImportError:
            raise ValueError("this release of transformers knows no response templates") from None
        self._make, self._process = regions.ResponseParser, values.process_field
        self.fields = templates.load_response_template(dict(source)).fields
        odd = sorted(set(self.fields) - {CONTENT, CALLS, *REASONING})
        if odd or CALLS not in self.fields or self.fields[CALLS].open_re is None:
            raise ValueError(f"it has regions {odd}" if odd else "it has no region for calls")
        self._regions = templates.load_response_template(_with_bare_regions(source, self.fields))
        thoughts = [name for name in REASONING if name in self.fields]
        self.thought: str | None = thoughts[0] if thoughts else None
        self.reasoning = self._reasoning()

    def _reasoning(self) -> Reasoning | None:
        if self.thought is None:
            return None
        field = self.fields[self.thought]
        if not field.open_literals or not field.close_literals:
            raise ValueError("its reasoning is not told by texts but by patterns")
        return Reasoning(field.open_literals[0].rstrip(), field.close_literals[0].strip())

    def parser(self, *, reasoning_open: bool = False) -> Any:
        """A parser of regions at the start of a reply, or inside its reasoning."""
        opened = reasoning_open and self.thought is not None
        prefix = self.fields[self.thought].open_literals[0] if opened else ""
        return self._make(self._regions, prefix=prefix)

    def call(self, value: Mapping[str, str]) -> Any:
        """What the template makes of a call's region; raises whatever transformers raises."""
        captures = {name: text for name, text in value.items() if name != "content"}
        return self._process(value["content"], self.fields[CALLS], captures)

    def end_of_call(self, text: str, body: str) -> int:
        """Where the call ends that is the first in ``text``."""
        field = self.fields[CALLS]
        opening = field.open_re.search(text)
        start = (opening.end() if opening else text.find(body)) + len(body)
        closing = field.close_re.match(text, start) if field.close_re is not None else None
        return int(closing.end() if closing else start)


def _with_bare_regions(source: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The template with every region as exact text, and what its patterns capture."""
    bare = copy.deepcopy(dict(source))
    for name, field in bare["fields"].items():
        for key in ("content", "content_args", "transform", "transform_each", "join"):
            field.pop(key, None)
        field.update(content="text", content_args={"strip": False}, optional=True, repeats=True)
        patterns = (fields[name].open_re, fields[name].close_re)
        groups = [group for pattern in patterns if pattern for group in pattern.groupindex]
        if name == CALLS or groups:
            field["transform"] = {key: f"{{{key}}}" for key in ("content", *groups)}
    return bare


class ResponseTemplateParser(ReplyParser):
    """Feeds transformers' parser; whitespace around calls and reasoning says nothing."""

    def __init__(
        self,
        template: ResponseTemplate,
        tools: Sequence[Tool],
        *,
        id_seed: str,
        reasoning_open: bool = False,
    ) -> None:
        super().__init__(id_seed=id_seed, reasoning=None)
        self._template = template
        self._schemas = {tool.name: tool.parameters for tool in tools}
        self._regions = template.parser(reasoning_open=reasoning_open)
        self._fed = ""
        self._space = ""
        self._field: str | None = template.thought if reasoning_open else None
        self._block_due = False

    def _answer(self, final: bool) -> None:
        """One character at a time, so that a region's text is known when it closes."""
        pending, self._pending = self._pending, ""
        for character in pending:
            self._fed += character
            for event in self._regions.feed(character):
                self._take(event)
        if final:
            for event in self._regions.finalize()[1]:
                self._take(event)

    def _take(self, event: Mapping[str, Any]) -> None:
        field, kind = event["field"], event["type"]
        if kind == "region_open":
            self._field = field
            self._block_due = bool(self._reasoning) and field == self._template.thought
        elif kind == "region_close":
            if field == CALLS:
                self._take_call(event["value"])
            self._space, self._field = (self._space if field == CONTENT else ""), None
        elif field != CALLS:
            self._say(field, event["text"])
            self._fed = self._fed[self._fed.find(event["text"]) + len(event["text"]) :]

    def _say(self, field: str, text: str) -> None:
        """Whitespace waits until something follows it in its own region."""
        text = self._space + text
        said = text.rstrip()
        self._space = text[len(said) :]
        if field != CONTENT:
            said = said if self._reasoning and not self._block_due else said.lstrip()
            said = f"\n\n{said}" if said and self._block_due else said
            self._block_due = self._block_due and not said
            self._emit_reasoning(said)
        else:
            leading = (self._seen_call or self._reasoning) and not self._content
            self._emit_text(said.lstrip() if leading else said)

    def _take_call(self, value: Mapping[str, str]) -> None:
        stop = self._template.end_of_call(self._fed, value["content"])
        raw, self._fed = self._fed[:stop].lstrip(), self._fed[stop:]
        self._space = ""
        try:
            made = self._template.call(value)
        except Exception as error:  # foreign code meets whatever a model wrote
            reason = str(error).partition("\n")[0]
            self._emit_outcome(BrokenCall(f"malformed call: {reason}"), raw)
            return
        for call in made if isinstance(made, list) else [made]:
            self._emit_made(call, raw)

    def _emit_made(self, call: Any, raw: str) -> None:
        self._emit(lambda: self._read(call), raw)

    def _read(self, call: Any) -> tuple[str, Mapping[str, Any]]:
        function = call.get("function", call) if isinstance(call, Mapping) else {}
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str) or not name.strip():
            raise BrokenCall("the call names no tool")
        arguments = as_arguments(function.get("arguments"), name)
        schema = self._schemas.get(name, {})
        return name, {key: _typed(key, value, schema) for key, value in arguments.items()}

    def finish(self) -> ParsedReply:
        """Whitespace at the very end of content was the model's."""
        reply_text = bool(self._content) and not self._seen_call
        parsed = super().finish()
        if self._space and (reply_text or not self._seen_call):
            self._emit_text(self._space)
            tail = (*parsed.tail_events, *self._drain())
            return replace(parsed, content="".join(self._content), tail_events=tail)
        return parsed


@dataclass(frozen=True)
class ResponseTemplateDialect(NativeDialect):
    """Reads replies by a response template; writes calls as ``base`` does.

    ``known``: the chat template prints calls in the form of ``base``, so they can be forced.
    """

    base: NativeDialect | None = None
    template: ResponseTemplate | None = None
    known: bool = False

    name: ClassVar[str] = "response_template"

    @cached_property
    def _parts(self) -> tuple[NativeDialect, ResponseTemplate]:
        assert self.base is not None
        assert self.template is not None
        return self.base, self.template

    @property
    def markers(self) -> tuple[str, ...]:
        base, template = self._parts
        literals = [
            text.strip()
            for field in template.fields.values()
            for text in (*(field.open_literals or ()), *(field.close_literals or ()))
        ]
        return tuple(dict.fromkeys([*base.markers, *filter(None, literals)]))

    def speaks(self, template: str) -> bool:
        return self.known

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        return self._parts[0].render_calls(calls)

    def call_id(self, call: ToolCall, index: int) -> str:
        return self._parts[0].call_id(call, index)

    def parser(
        self, *, id_seed: str, tools: Sequence[Tool] = (), reasoning_open: bool = False
    ) -> ResponseTemplateParser:
        return ResponseTemplateParser(
            self._parts[1], tools, id_seed=id_seed, reasoning_open=reasoning_open
        )

    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec:
        if not self.known:
            raise SchemaError(
                "this model's form of calls is known for reading only, so a call cannot be forced; "
                "leave the choice to the model (tool_choice='auto')"
            )
        return self._parts[0].call_grammar(tools, many=many)


def _typed(key: str, value: Any, schema: Mapping[str, Any]) -> Any:
    """Text of an argument whose schema says what it is."""
    wanted = argument_schema(schema, key) if isinstance(value, str) else None
    return value if wanted is None else typed_value(value, wanted, schema)


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
    other = ResponseTemplateDialect(base.reasoning, base, template, known)
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

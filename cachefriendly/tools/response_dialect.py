"""Replies read by transformers' own parser, where the tokenizer carries a response template.

The parser finds the regions of a reply; what a call's region holds is read behind it, so that a
malformed call is data instead of an error in the middle of a stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cachefriendly.errors import SchemaError
from cachefriendly.messages import Tool, ToolCall
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.call_json import BrokenCall, as_arguments
from cachefriendly.tools.native import NativeDialect
from cachefriendly.tools.response_template import CALLS, CONTENT, ResponseTemplate
from cachefriendly.tools.stream import ParsedReply, ReplyParser
from cachefriendly.tools.typed import argument_schema, typed_value

__all__ = ["ResponseTemplateDialect", "ResponseTemplateParser"]


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


@dataclass(frozen=True, kw_only=True)
class ResponseTemplateDialect(NativeDialect):
    """Reads replies by a response template; writes calls as ``base`` does.

    ``known``: the chat template prints calls in the form of ``base``, so they can be forced.
    """

    name: str = "response_template"
    base: NativeDialect
    template: ResponseTemplate
    known: bool

    @property
    def markers(self) -> tuple[str, ...]:
        literals = [
            text.strip()
            for field in self.template.fields.values()
            for text in (*(field.open_literals or ()), *(field.close_literals or ()))
        ]
        return tuple(dict.fromkeys([*self.base.markers, *filter(None, literals)]))

    def speaks(self, template: str) -> bool:
        return self.known

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        return self.base.render_calls(calls)

    def call_id(self, call: ToolCall, index: int) -> str:
        return self.base.call_id(call, index)

    def parser(
        self, *, id_seed: str, tools: Sequence[Tool] = (), reasoning_open: bool = False
    ) -> ResponseTemplateParser:
        return ResponseTemplateParser(
            self.template, tools, id_seed=id_seed, reasoning_open=reasoning_open
        )

    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec:
        if not self.known:
            raise SchemaError(
                "this model's form of calls is known for reading only, so a call cannot be forced; "
                "leave the choice to the model (tool_choice='auto')"
            )
        return self.base.call_grammar(tools, many=many)


def _typed(key: str, value: Any, schema: Mapping[str, Any]) -> Any:
    """Text of an argument whose schema says what it is."""
    wanted = argument_schema(schema, key) if isinstance(value, str) else None
    return value if wanted is None else typed_value(value, wanted, schema)

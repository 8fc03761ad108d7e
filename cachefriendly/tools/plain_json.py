"""The plain JSON dialect: a reply that is one JSON object with the name of a tool is a call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from cachefriendly.messages import Tool, ToolCall
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.call_json import BrokenCall, call_object, read_call
from cachefriendly.tools.grammar import calls_grammar
from cachefriendly.tools.json_scan import JsonScanner
from cachefriendly.tools.native import NativeDialect, tool_line
from cachefriendly.tools.stream import THINK, Reasoning, ReplyParser

__all__ = ["PlainJsonDialect", "PlainJsonParser"]

_INTRODUCTION = """\
# Tools

You can use the tools below to help with the user's request. Each line is one tool, given as a \
JSON object with the JSON Schema of its arguments:
"""
_INSTRUCTIONS = """

To use a tool, reply with nothing but one JSON object that holds its name and its arguments:
{"name": "the tool's name", "arguments": {"argument": "value"}}"""

_HEAD = re.compile(r"\s*(```(?:json)?[ \t]*\r?\n\s*)?(?=\{)")
_HEAD_BEGUN = re.compile(
    r"\s*(?:`{1,2}|```(?:j|js|jso|json)?[ \t]*\r?|```(?:json)?[ \t]*\r?\n\s*)?"
)
_FIRST_KEY = re.compile(r'\{\s*"([^"]*)"')
_CALL_KEYS = frozenset({"name", "arguments", "parameters", "type", "id"})
_NAME = re.compile(r'"name"\s*:\s*"([^"\\]*)"')
_TAIL = re.compile(r"\s*(?:`{0,3})\s*")


class PlainJsonDialect(NativeDialect):
    """No markers; a reply is either text or exactly one call."""

    name = "plain_json"

    def speaks(self, template: str) -> bool:
        return all(text in template for text in ("tools", '"name"', '"parameters"'))

    def describe(self, tools: Sequence[Tool]) -> str:
        """The block for the end of a system message: the tools, one per line, in this order."""
        return _INTRODUCTION + "\n".join(map(tool_line, tools)) + _INSTRUCTIONS

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """The text of calls inside an assistant turn."""
        return "\n".join(call_object(call.name, call.arguments) for call in calls)

    def parser(
        self, *, id_seed: str, tools: Sequence[Tool] = (), reasoning_open: bool = False
    ) -> PlainJsonParser:
        """A parser for one reply; only objects that name one of ``tools`` are calls."""
        return PlainJsonParser(
            id_seed=id_seed,
            tool_names=[tool.name for tool in tools],
            reasoning=self.reasoning,
            reasoning_open=reasoning_open,
        )

    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec:
        """Exactly one call of one of these tools; a reply holds no more, so ``many`` adds none."""
        return calls_grammar(tools, markers=(), many=False)


class PlainJsonParser(ReplyParser):
    """Holds the reply back while it may be one JSON object that calls a known tool."""

    def __init__(
        self,
        *,
        id_seed: str,
        tool_names: Sequence[str] = (),
        reasoning: Reasoning | None = THINK,
        reasoning_open: bool = False,
    ) -> None:
        super().__init__(id_seed=id_seed, reasoning=reasoning, reasoning_open=reasoning_open)
        self._names = frozenset(tool_names)
        self._kind: Literal["open", "object", "broken call", "text"] = (
            "open" if self._names else "text"
        )
        self._scanner = JsonScanner()
        self._start = self._scanned = self._stop = 0

    def _answer(self, final: bool) -> None:
        if self._kind == "open":
            self._look_for_object(final)
        if self._kind == "object":
            self._scan_object()
        if final and self._kind in ("object", "broken call"):
            self._settle_call()
        if self._kind == "text" or final:
            self._emit_text(self._pending)
            self._pending = ""

    def _look_for_object(self, final: bool) -> None:
        head = _HEAD.match(self._pending)
        if head:
            self._kind = "object"
            self._start = self._scanned = head.end()
        elif final or not _HEAD_BEGUN.fullmatch(self._pending):
            self._kind = "text"

    def _scan_object(self) -> None:
        text, scanner = self._pending, self._scanner
        while self._scanned < len(text) and scanner.status == "more":
            scanner.push(text[self._scanned])
            self._scanned += 1
        key = _FIRST_KEY.match(text, self._start)
        if key and key[1] not in _CALL_KEYS:
            self._kind = "text"
        elif scanner.status == "bad":
            self._kind = "broken call" if self._named_tool() else "text"
        elif scanner.status == "done" and not _TAIL.fullmatch(text, self._scanned):
            self._kind = "text"

    def _named_tool(self) -> bool:
        # Only what was scanned: how much text lies behind it depends on how it was split.
        name = _NAME.search(self._pending, self._start, self._scanned)
        return name is not None and name[1] in self._names

    def _settle_call(self) -> None:
        """The reply is over: a whole call, one that is broken or cut off, or text after all."""
        if self._scanner.status == "done":
            body = self._pending[self._start : self._scanned]
            is_call, whole = self._is_call(body), True
        else:
            body = self._pending[self._start :]
            is_call, whole = self._named_tool(), self._kind == "broken call"
        if is_call:
            self._emit_call(body, self._pending, whole=whole)
            self._pending = ""

    def _is_call(self, body: str) -> bool:
        try:
            name: str | None = read_call(body)[0]
        except BrokenCall as problem:
            name = problem.name
        return name in self._names

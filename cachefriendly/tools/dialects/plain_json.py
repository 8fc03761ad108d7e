"""The plain JSON dialect: a reply of nothing but JSON objects with names of tools is calls."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cachefriendly.messages import Tool
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.call_json import BrokenCall, read_call
from cachefriendly.tools.call_text import CallText
from cachefriendly.tools.grammar import calls_grammar
from cachefriendly.tools.json_scan import JsonScanner
from cachefriendly.tools.native import FormDialect, introduction
from cachefriendly.tools.stream import THINK, Reasoning, ReplyParser

__all__ = ["BareJsonDialect", "PlainJsonDialect", "PlainJsonParser"]

_INSTRUCTIONS = """

To use a tool, reply with nothing but one JSON object that holds its name and its arguments:
{"name": "the tool's name", "arguments": {"argument": "value"}}"""

_TEXT = CallText(
    before_name='{"name": "',
    after_name='", "arguments": ',
    after_arguments="}",
    between="\n",
    quoted=True,
)
_HEAD = re.compile(r"\s*(```(?:json)?[ \t]*\r?\n\s*)?(?=\{)")
_HEAD_BEGUN = re.compile(
    r"\s*(?:`{1,2}|```(?:j|js|jso|json)?[ \t]*\r?|```(?:json)?[ \t]*\r?\n\s*)?"
)
_FIRST_KEY = re.compile(r'\{\s*"([^"]*)"')
_CALL_KEYS = frozenset({"name", "arguments", "parameters", "type", "id"})
_NAME = re.compile(r'"name"\s*:\s*"([^"\\]*)"')
_NEXT = re.compile(r"\s*[;,]?\s*(?=\{)")
_TAIL = re.compile(r"\s*(?:[;,]|`{0,3})\s*")


@dataclass(frozen=True, kw_only=True)
class BareJsonDialect(FormDialect):
    """Calls without markers: a reply is either text, or one or more calls and nothing else."""

    text: CallText
    reader: type[PlainJsonParser]

    def parser(
        self, *, id_seed: str, tools: Sequence[Tool] = (), reasoning_open: bool = False
    ) -> ReplyParser:
        """A parser for one reply; only objects that name one of ``tools`` are calls."""
        return self.reader(
            id_seed=id_seed,
            tool_names=[tool.name for tool in tools],
            reasoning=self.reasoning,
            reasoning_open=reasoning_open,
        )

    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec:
        """Exactly one call of one of these tools, or one or more of them when ``many``."""
        return calls_grammar(tools, self.text, many=many)


class PlainJsonParser(ReplyParser):
    """Holds the reply back while it may be JSON objects that call known tools."""

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
        self._kind: Literal["open", "object", "between", "broken call", "text"] = (
            "open" if self._names else "text"
        )
        self._scanner = JsonScanner()
        self._start = self._scanned = 0
        self._whole: list[tuple[int, int]] = []

    def _answer(self, final: bool) -> None:
        if self._kind == "open":
            self._look_for_object(final)
        if self._kind == "between":
            self._look_for_next()
        while self._kind == "object" and self._scan_object():
            self._look_for_next()
        if final and self._kind != "text":
            self._settle_calls()
        if self._kind == "text" or final:
            self._text(final)

    def _text(self, final: bool) -> None:
        """The reply, or what is left of it, is text."""
        self._emit_text(self._pending)
        self._pending = ""

    def _look_for_object(self, final: bool) -> None:
        head = _HEAD.match(self._pending)
        if head:
            self._kind = "object"
            self._start = self._scanned = head.end()
        elif final or not _HEAD_BEGUN.fullmatch(self._pending):
            self._kind = "text"

    def _scan_object(self) -> bool:
        """Scan on; True when the object is whole."""
        text, scanner = self._pending, self._scanner
        while self._scanned < len(text) and scanner.status == "more":
            scanner.push(text[self._scanned])
            self._scanned += 1
        key = _FIRST_KEY.match(text, self._start)
        if key and key[1] not in _CALL_KEYS:
            self._kind = "text"
        elif scanner.status == "bad":
            self._kind = "broken call" if self._whole or self._named_tool() else "text"
        elif scanner.status == "done":
            self._whole.append((self._start, self._scanned))
            self._kind = "between"
        return self._kind == "between"

    def _look_for_next(self) -> None:
        """Behind a whole object: another one, the end of a fence, or it was text after all."""
        following = _NEXT.match(self._pending, self._scanned)
        if following:
            self._kind, self._scanner = "object", JsonScanner()
            self._start = self._scanned = following.end()
        elif not _TAIL.fullmatch(self._pending, self._scanned):
            self._kind = "text"

    def _named_tool(self) -> bool:
        # Only what was scanned: how much text lies behind it depends on how it was split.
        name = _NAME.search(self._pending, self._start, self._scanned)
        return name is not None and name[1] in self._names

    def _settle_calls(self) -> None:
        """The reply is over: whole calls, one that is broken or cut off, or text after all."""
        text, spans = self._pending, self._whole
        cut = self._kind in ("object", "broken call")
        if not all(self._is_call(text[start:stop]) for start, stop in spans):
            return
        if not spans and not (cut and self._named_tool()):
            return
        alone = len(spans) + cut == 1
        for start, stop in spans:
            self._emit_call(text[start:stop], text if alone else text[start:stop])
        if cut:
            body = text[self._start :]
            self._emit_call(body, text if alone else body, whole=self._kind == "broken call")
        self._pending = ""

    def _is_call(self, body: str) -> bool:
        try:
            name: str | None = read_call(body)[0]
        except BrokenCall as problem:
            name = problem.name
        return name in self._names


@dataclass(frozen=True, kw_only=True)
class PlainJsonDialect(BareJsonDialect):
    """One JSON object with name and arguments, or several."""

    name: str = "plain_json"
    tells: tuple[str, ...] = ("tools", '"name"', '"parameters"')
    text: CallText = _TEXT
    reader: type[PlainJsonParser] = PlainJsonParser

    def describe(self, tools: Sequence[Tool]) -> str:
        """The block for the end of a system message: the tools, one per line, in this order."""
        return introduction(tools) + _INSTRUCTIONS

"""The Hermes / Qwen dialect: each call is a JSON object between ``<tool_call>`` markers."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cachefriendly.messages import Message, Tool, ToolCall
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.call_json import call_object
from cachefriendly.tools.grammar import calls_grammar
from cachefriendly.tools.json_scan import JsonScanner
from cachefriendly.tools.stream import ReplyParser, held_back

__all__ = ["HermesDialect", "HermesParser"]

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
RESULT_OPEN, RESULT_CLOSE = "<tool_response>", "</tool_response>"

_INTRODUCTION = """\
# Tools

You can use the tools below to help with the user's request. Each line between <tools> and \
</tools> is one tool, given as a JSON object with the JSON Schema of its arguments:
<tools>
"""
_INSTRUCTIONS = """
</tools>

To use a tool, reply with a JSON object that holds its name and its arguments, between \
<tool_call> and </tool_call>:
<tool_call>
{"name": "the tool's name", "arguments": {"argument": "value"}}
</tool_call>
Use one such block for each call. The results come back between <tool_response> and \
</tool_response>."""


class HermesDialect:
    """Calls in ``<tool_call>``, results in ``<tool_response>``; the fallback for any template."""

    name = "hermes"
    markers = (CALL_OPEN, CALL_CLOSE, RESULT_OPEN, RESULT_CLOSE)

    def describe(self, tools: Sequence[Tool]) -> str:
        """The block for the end of a system message: the tools, one per line, in this order."""
        return _INTRODUCTION + "\n".join(map(tool_line, tools)) + _INSTRUCTIONS

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """The text of calls inside an assistant turn."""
        objects = (call_object(call.name, call.arguments) for call in calls)
        return "\n".join(f"{CALL_OPEN}\n{text}\n{CALL_CLOSE}" for text in objects)

    def render_result(self, message: Message) -> str:
        """The text of a tool result; templates without tools get it as a user turn."""
        return f"{RESULT_OPEN}\n{message.content}\n{RESULT_CLOSE}"

    def parser(
        self, *, id_seed: str, tool_names: Sequence[str] = (), reasoning_open: bool = False
    ) -> HermesParser:
        """A parser for one reply. The markers say what a call is, so the names are not needed."""
        return HermesParser(id_seed=id_seed, reasoning_open=reasoning_open)

    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec:
        """Exactly one call of one of these tools, or one or more of them when ``many``."""
        return calls_grammar(tools, markers=(CALL_OPEN, CALL_CLOSE), many=many)


def tool_line(tool: Tool) -> str:
    """A tool as one line of JSON.

    The schema's keys are sorted: a store that reorders keys (jsonb) costs no ids.
    """
    schema = json.dumps(tool.parameters, ensure_ascii=False, sort_keys=True)
    head = json.dumps(
        {"name": tool.name, "description": tool.description}, ensure_ascii=False
    ).removesuffix("}")
    return f'{{"type": "function", "function": {head}, "parameters": {schema}}}}}'


class HermesParser(ReplyParser):
    """Text outside the markers is content, whitespace before a call is not.

    A closing marker inside a JSON string belongs to the string, unless the JSON never becomes
    whole: then the first closing marker ends the (invalid) call. A new opening marker outside a
    string ends a call whose closing marker is missing.
    """

    def __init__(self, *, id_seed: str, reasoning_open: bool = False) -> None:
        super().__init__(id_seed=id_seed, reasoning_open=reasoning_open)
        self._scanner: JsonScanner | None = None
        self._scanned = 0

    def _answer(self, final: bool) -> None:
        more = True
        while more:
            more = self._text(final) if self._scanner is None else self._call(final, self._scanner)

    def _text(self, final: bool) -> bool:
        """Consume text up to the next call; True when one begins."""
        text, marker, rest = self._pending.partition(CALL_OPEN)
        seen_call = bool(self._calls or self._invalid)
        if seen_call and not self._content:
            text = text.lstrip()
        if marker:
            self._emit_text(text.rstrip())
            self._pending, self._scanner, self._scanned = rest, JsonScanner(), 0
            return True
        if final:
            self._emit_text("" if seen_call and text.isspace() else text)
            self._pending = ""
            return False
        settled = text[: len(text) - held_back(text, CALL_OPEN)].rstrip()
        self._emit_text(settled)
        self._pending = text[len(settled) :]
        return False

    def _call(self, final: bool, scanner: JsonScanner) -> bool:
        """Scan the body of a call; True when it ended and text follows."""
        body = self._pending
        while self._scanned < len(body):
            at = self._scanned
            if not scanner.in_string and body[at] == "<":
                if body.startswith(CALL_CLOSE, at):
                    return self._end_call(at, at + len(CALL_CLOSE))
                if body.startswith(CALL_OPEN, at):
                    return self._end_call(at, at)
                if held_back(body[at:], CALL_OPEN, CALL_CLOSE) == len(body) - at:
                    whole = scanner.status == "done"
                    return final and self._end_call(at, len(body), whole=whole)
            was_sound = scanner.status != "bad"
            scanner.push(body[at])
            self._scanned += 1
            if was_sound and scanner.status == "bad" and self._end_at_first_close(at):
                return True
        if not final:
            return False
        if scanner.status != "done" and self._end_at_first_close(len(body)):
            return True
        return self._end_call(len(body), len(body), whole=scanner.status == "done")

    def _end_at_first_close(self, stop: int) -> bool:
        """The JSON is broken: was a closing marker taken for part of a string?"""
        at = self._pending.find(CALL_CLOSE, 0, stop)
        return at >= 0 and self._end_call(at, at + len(CALL_CLOSE))

    def _end_call(self, body_stop: int, call_stop: int, *, whole: bool = True) -> bool:
        raw = CALL_OPEN + self._pending[:call_stop]
        self._emit_call(self._pending[:body_stop], raw, whole=whole)
        self._pending = self._pending[call_stop:]
        self._scanner = None
        return True

"""The dialect of Gemma 4: calls in a notation of its own, thoughts in a channel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cachefriendly.messages import Tool, ToolCall
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.call_json import BrokenCall
from cachefriendly.tools.dialects.gemma_grammar import gemma_calls_grammar
from cachefriendly.tools.dialects.gemma_values import QUOTE, read_object, written
from cachefriendly.tools.marked import MarkedParser
from cachefriendly.tools.native import NativeDialect
from cachefriendly.tools.stream import Reasoning

__all__ = ["GemmaDialect", "GemmaParser"]

CALL_OPEN, CALL_CLOSE = "<|tool_call>", "<tool_call|>"
RESULT_OPEN, RESULT_CLOSE = "<|tool_response>", "<tool_response|>"
CHANNEL_OPEN, CHANNEL_CLOSE = "<|channel>", "<channel|>"
THOUGHT = "thought"
_THOUGHTS = Reasoning(CHANNEL_OPEN + THOUGHT, CHANNEL_CLOSE)
_HEAD = re.compile(r"\s*call:(?P<name>[^{]*)")
_CLOSE = re.compile(re.escape(CALL_CLOSE))
_TOKEN = re.compile("|".join(map(re.escape, (QUOTE, CALL_CLOSE, CALL_OPEN, RESULT_OPEN))))


@dataclass(frozen=True, kw_only=True)
class GemmaDialect(NativeDialect):
    """``<|tool_call>call:name{key:value}<tool_call|>``.

    The channel ``thought`` is reasoning, wherever in a reply it is opened.
    """

    reasoning: Reasoning | None = _THOUGHTS

    name: str = "gemma4"
    structure: tuple[str, ...] = (
        CALL_OPEN, CALL_CLOSE, RESULT_OPEN, RESULT_CLOSE, CHANNEL_OPEN, CHANNEL_CLOSE, QUOTE,
    )  # fmt: skip

    stops: tuple[str, ...] = (RESULT_OPEN,)

    def speaks(self, template: str) -> bool:
        return f"{CALL_OPEN}call:" in template

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        return "".join(
            f"{CALL_OPEN}call:{call.name}{written(call.arguments)}{CALL_CLOSE}" for call in calls
        )

    def parser(
        self, *, id_seed: str, tools: Sequence[Tool] = (), reasoning_open: bool = False
    ) -> GemmaParser:
        return GemmaParser(id_seed=id_seed, reasoning=self.reasoning, reasoning_open=reasoning_open)

    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec:
        return gemma_calls_grammar(tools, CALL_OPEN, CALL_CLOSE, many=many)


class GemmaParser(MarkedParser):
    """A closing text inside a string belongs to the string, unless the string never ends: then the
    first one ends the (broken) call."""

    def __init__(
        self, *, id_seed: str, reasoning: Reasoning | None, reasoning_open: bool = False
    ) -> None:
        super().__init__(
            id_seed=id_seed,
            opens=(CALL_OPEN, CHANNEL_OPEN),
            drops=(CALL_CLOSE, RESULT_OPEN, RESULT_CLOSE, CHANNEL_CLOSE),
            reasoning=reasoning,
            reasoning_open=reasoning_open,
        )
        self._scanned, self._in_string = 0, False

    def _call(self, final: bool) -> bool:
        if self._opened == CHANNEL_OPEN:
            return self._thought(final)
        while found := _TOKEN.search(self._pending, self._scanned):
            if found.group() == QUOTE:
                self._in_string = not self._in_string
            elif not self._in_string:
                return self._end(found)
            self._scanned = found.end()
        if not final:
            return False
        return self._end(_CLOSE.search(self._pending) if self._in_string else None)

    def _end(self, found: re.Match[str] | None) -> bool:
        """Of two texts that end a call only the closing one belongs to it."""
        whole = self._pending
        body = whole[: found.start()] if found else whole
        stop = len(body)
        if found and found.group() == CALL_CLOSE:
            stop = found.end()
        self._scanned, self._in_string = 0, False
        return self._end_call(stop, lambda: _read(body), whole=found is not None)

    def _thought(self, final: bool) -> bool:
        """A channel that is opened behind other text; its first line is its name."""
        text, close, rest = self._pending.partition(CHANNEL_CLOSE)
        if not close and not final:
            return False
        channel, _, thought = text.lstrip().partition("\n")
        said = (thought if channel.strip() == THOUGHT else text).strip()
        self._emit_reasoning(f"\n\n{said}" if said and self._reasoning else said)
        self._pending, self._opened = rest, None
        return True


def _read(body: str) -> tuple[str, dict[str, Any]]:
    head = _HEAD.match(body)
    name = head["name"].strip() if head else ""
    if head is None or not name:
        raise BrokenCall("the call names no tool")
    return name, read_object(body[head.end() :], name)

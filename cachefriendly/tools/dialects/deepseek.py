# ruff: noqa: RUF001, RUF002 (the bar of the model's tokens is a wide one)
"""The dialects of DeepSeek up to V3.1: calls between tokens, arguments as JSON, fenced or bare."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cachefriendly.messages import Tool, ToolCall
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.call_json import BrokenCall, read_arguments
from cachefriendly.tools.call_text import CallText
from cachefriendly.tools.grammar import calls_grammar
from cachefriendly.tools.headed import HeadedParser
from cachefriendly.tools.native import NativeDialect

__all__ = ["DeepSeekDialect", "DeepSeekParser"]

SECTION_OPEN, SECTION_CLOSE = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL_OPEN, CALL_CLOSE = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"
RESULTS = (
    "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>",
    "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>",
)  # fmt: skip
_FENCED = re.compile(
    r"(?P<name>[^\n]*)\n\s*```(?:json)?\s*(?P<arguments>.*?)\s*(?:```)?\s*", re.DOTALL
)
_FENCED_TEXT = CallText(
    begin=SECTION_OPEN,
    before_name=f"{CALL_OPEN}function{SEPARATOR}",
    after_name="\n```json\n",
    after_arguments=f"\n```{CALL_CLOSE}",
    between="\n",
    end=SECTION_CLOSE,
)
_BARE_TEXT = CallText(
    begin=SECTION_OPEN,
    before_name=CALL_OPEN,
    after_name=SEPARATOR,
    after_arguments=CALL_CLOSE,
    end=SECTION_CLOSE,
)


@dataclass(frozen=True, kw_only=True)
class DeepSeekDialect(NativeDialect):
    """``fenced`` (V3, R1): ``function<｜tool▁sep｜>name`` and the arguments in a code block.

    Else (V3.1) ``name<｜tool▁sep｜>arguments``. Replies are read in either form.
    """

    fenced: bool = False

    name: str = "deepseek"
    structure: tuple[str, ...] = (
        SECTION_OPEN, SECTION_CLOSE, CALL_OPEN, CALL_CLOSE, SEPARATOR, *RESULTS,
    )  # fmt: skip

    def speaks(self, template: str) -> bool:
        return SECTION_OPEN in template and ("```" in template) == self.fenced

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        return self._text.render(calls)

    def parser(
        self, *, id_seed: str, tools: Sequence[Tool] = (), reasoning_open: bool = False
    ) -> DeepSeekParser:
        return DeepSeekParser(
            id_seed=id_seed, reasoning=self.reasoning, reasoning_open=reasoning_open
        )

    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec:
        return calls_grammar(tools, self._text, markers=self.structure, many=many)

    @property
    def _text(self) -> CallText:
        return _FENCED_TEXT if self.fenced else _BARE_TEXT


class DeepSeekParser(HeadedParser):
    """Reads both forms: a code block behind the separator is what tells them apart."""

    OPEN = CALL_OPEN
    CLOSES = (CALL_CLOSE,)
    STOPS = (CALL_OPEN, SECTION_OPEN, SECTION_CLOSE)
    DROPS = (SECTION_OPEN, SECTION_CLOSE, SEPARATOR, *RESULTS)

    def _read(self, head: str, body: str) -> tuple[str, dict[str, Any]]:
        first, separator, rest = head.partition(SEPARATOR)
        fenced = _FENCED.fullmatch(rest + body)
        name = (fenced["name"] if fenced else first).strip()
        if not name:
            raise BrokenCall("the call names no tool")
        if not separator:
            raise BrokenCall(f"{SEPARATOR} is missing behind the name", name)
        if fenced:
            return name, read_arguments(fenced["arguments"], name)
        return name, read_arguments(rest + body, name)

"""The dialect of Kimi K2: a section of calls, each under an id that holds the tool's name."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cachefriendly.messages import Tool, ToolCall
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.call_json import BrokenCall, read_arguments
from cachefriendly.tools.call_text import lark_text
from cachefriendly.tools.grammar import arguments_rule, call_choice, what_of
from cachefriendly.tools.headed import HeadedParser
from cachefriendly.tools.native import NativeDialect

__all__ = ["KimiDialect", "KimiParser"]

SECTION_OPEN, SECTION_CLOSE = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL_OPEN, CALL_CLOSE = "<|tool_call_begin|>", "<|tool_call_end|>"
ARGUMENTS_OPEN = "<|tool_call_argument_begin|>"
_ID = re.compile(r"functions\.(?P<name>.+):\d+", re.DOTALL)
_PLAIN = re.compile(r"(?:functions\.)?(?P<name>.+?)(?::\d+)?", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class KimiDialect(NativeDialect):
    """``functions.name:0`` is a call's id, counted through the conversation.

    The id that the model wrote is kept: a result is shown under the id that its caller gives it.
    """

    name: str = "kimi"
    structure: tuple[str, ...] = (
        SECTION_OPEN,
        SECTION_CLOSE,
        CALL_OPEN,
        CALL_CLOSE,
        ARGUMENTS_OPEN,
    )

    def speaks(self, template: str) -> bool:
        return SECTION_OPEN in template

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        texts = (
            f"{CALL_OPEN}{_id(call, index)}{ARGUMENTS_OPEN}"
            f"{json.dumps(dict(call.arguments), ensure_ascii=False)}{CALL_CLOSE}"
            for index, call in enumerate(calls)
        )
        return SECTION_OPEN + "".join(texts) + SECTION_CLOSE

    def parser(
        self, *, id_seed: str, tools: Sequence[Tool] = (), reasoning_open: bool = False
    ) -> KimiParser:
        return KimiParser(id_seed=id_seed, reasoning=self.reasoning, reasoning_open=reasoning_open)

    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec:
        """The number of a call is left to the model: it counts through the conversation."""
        lines = [
            f"start: {self._lark(SECTION_OPEN)} {'block+' if many else 'block'} "
            f"{self._lark(SECTION_CLOSE)}",
            f"block: ({call_choice(tools)}) {self._lark(CALL_CLOSE)}",
            "number: /[0-9]{1,3}/ " + self._lark(ARGUMENTS_OPEN),
        ]
        for index, tool in enumerate(tools):
            opening = self._lark(f"{CALL_OPEN}functions.{tool.name}:")
            lines.append(f"call_{index}: {opening} number arguments_{index}")
            lines.append(f"arguments_{index}: {arguments_rule(tool)}")
        lark = "\n".join([*lines, ""])
        return GrammarSpec(lark, what_of(tools), self.structure, (SECTION_CLOSE,))

    def call_id(self, call: ToolCall, index: int) -> str:
        return _id(call, index)

    def _lark(self, text: str) -> str:
        return lark_text(text, self.structure)


def _id(call: ToolCall, index: int) -> str:
    return call.id if _ID.fullmatch(call.id) else f"functions.{call.name}:{index}"


class KimiParser(HeadedParser):
    """Reads ``id <|tool_call_argument_begin|> arguments``."""

    OPEN = CALL_OPEN
    CLOSES = (CALL_CLOSE,)
    STOPS = (CALL_OPEN, SECTION_OPEN, SECTION_CLOSE)
    DROPS = (SECTION_OPEN, SECTION_CLOSE, ARGUMENTS_OPEN)

    def _read(self, head: str, body: str) -> tuple[str, dict[str, Any]]:
        written, marker, rest = head.partition(ARGUMENTS_OPEN)
        found = _PLAIN.fullmatch(written.strip())
        name = found["name"] if found else None
        if not name:
            raise BrokenCall("the call names no tool")
        if not marker:
            raise BrokenCall(f"{ARGUMENTS_OPEN} is missing behind the name", name)
        return name, read_arguments(rest + body, name)

    def _written_id(self, head: str) -> str:
        written = head.partition(ARGUMENTS_OPEN)[0].strip()
        return written if _ID.fullmatch(written) else ""

"""LFM2's dialect: a Python list of calls between two markers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cachefriendly.errors import SchemaError
from cachefriendly.messages import Tool, ToolCall
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.arguments import arguments_of
from cachefriendly.tools.call_json import BrokenCall
from cachefriendly.tools.call_text import lark_text
from cachefriendly.tools.grammar import call_choice, value_rule, what_of
from cachefriendly.tools.marked import MarkedParser
from cachefriendly.tools.native import NativeDialect
from cachefriendly.tools.python_calls import read_python_calls, render_python_calls
from cachefriendly.tools.stream import ReplyParser

__all__ = ["Lfm2Dialect", "Lfm2Parser"]

OPEN, CLOSE = "<|tool_call_start|>", "<|tool_call_end|>"


@dataclass(frozen=True, kw_only=True)
class Lfm2Dialect(NativeDialect):
    """``[name(key="value"), ...]``."""

    name: str = "lfm2"
    structure: tuple[str, ...] = (OPEN, CLOSE, "<|tool_response_start|>", "<|tool_response_end|>")

    def speaks(self, template: str) -> bool:
        return any(text in template for text in (OPEN, "<|tool_list_start|>", '"List of tools: ['))

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """The text of calls inside an assistant turn."""
        return OPEN + render_python_calls(calls) + CLOSE

    def parser(
        self, *, id_seed: str, tools: Sequence[Tool] = (), reasoning_open: bool = False
    ) -> ReplyParser:
        """A parser for one reply. The values are literals, so tools are not needed."""
        return Lfm2Parser(
            id_seed=id_seed,
            opens=(OPEN,),
            drops=(CLOSE,),
            reasoning=self.reasoning,
            reasoning_open=reasoning_open,
        )

    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec:
        """Exactly one call of one of these tools, or one or more of them when ``many``."""
        choice = call_choice(tools)
        rules = [rule for index, tool in enumerate(tools) for rule in _tool_rules(index, tool)]
        start = lark_text(f"{OPEN}[", self.structure)
        end = lark_text(f"]{CLOSE}", self.structure)
        more = ' (", " call)*' if many else ""
        lines = [f"start: {start} call{more} {end}", f"call: {choice}", *rules]
        return GrammarSpec("\n".join(lines) + "\n", what=what_of(tools), markers=self.structure)


class Lfm2Parser(MarkedParser):
    """A list that cannot be read is one broken call, up to the closing marker."""

    def _call(self, final: bool) -> bool:
        at = self._pending.find(CLOSE)
        if at < 0 and not final:
            return False
        body = self._pending if at < 0 else self._pending[:at]
        stop = len(self._pending) if at < 0 else at + len(CLOSE)
        outcomes: Sequence[tuple[str, dict[str, Any]] | BrokenCall]
        try:
            outcomes = read_python_calls(body)
        except BrokenCall as problem:
            outcomes = [problem]
        for outcome in outcomes:
            self._emit_outcome(outcome, OPEN + self._pending[:stop], whole=at >= 0)
        self._pending = self._pending[stop:]
        self._opened = None
        return True


def _tool_rules(index: int, tool: Tool) -> list[str]:
    """Required arguments first, the values as JSON, which the parser reads as well."""
    arguments = arguments_of(tool)
    keys, required = arguments.required_first, arguments.required
    if not _readable(tool.name, keys):
        raise SchemaError(
            f"tool {tool.name!r}: a call written as Python needs names that are identifiers and no "
            "words of Python's own; rename the tool or its parameters"
        )
    rules = []
    for number, key in enumerate(keys):
        what = f"tool {tool.name!r}: argument {key!r}"
        rule = value_rule(arguments.schemas[key], arguments.root, what=what)
        rules.append(f'argument_{index}_{number}: "{key}=" value_{index}_{number}')
        rules.append(f"value_{index}_{number}: {rule}")
    body = _argument_list([f"argument_{index}_{n}" for n in range(len(keys))], len(required))
    return [f'call_{index}: "{tool.name}(" {body} ")"', *rules]


def _readable(name: str, keys: Sequence[str]) -> bool:
    try:
        (read,) = read_python_calls(f"{name}({', '.join(f'{key}=0' for key in keys)})")
    except (BrokenCall, ValueError):
        return False
    return read == (name, dict.fromkeys(keys, 0))


def _argument_list(names: Sequence[str], required: int) -> str:
    """The first ``required`` names, then any of the others, a comma between two."""
    optional = [f'(", " {name})?' for name in names[required:]]
    if required:
        return ' ", " '.join(names[:required]) + " " + " ".join(optional)
    ways = [
        f"{name} {' '.join(optional[number + 1 :])}" for number, name in enumerate(names[required:])
    ]
    return f"({' | '.join(ways)})?" if ways else ""

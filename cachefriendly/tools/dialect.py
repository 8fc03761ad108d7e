"""What a tool dialect is, and which one a chat template speaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cachefriendly.messages import Message, Tool, ToolCall
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.hermes import CALL_OPEN, HermesDialect
from cachefriendly.tools.plain_json import PlainJsonDialect
from cachefriendly.tools.stream import ReplyParser

__all__ = ["Dialect", "dialect_for"]


class Dialect(Protocol):
    """How tools, calls and results are written for a model, and how its calls are read.

    ``markers`` are the texts that are structure: they must not arise from untrusted text.
    """

    @property
    def name(self) -> str: ...

    @property
    def markers(self) -> tuple[str, ...]: ...

    def describe(self, tools: Sequence[Tool]) -> str:
        """The tools for templates that know none: goes to the end of the system message."""
        ...

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """The text of calls inside an assistant turn, for templates that know no tools."""
        ...

    def render_result(self, message: Message) -> str:
        """The text of a tool result, for templates that know no tools (as a user turn)."""
        ...

    def parser(
        self, *, id_seed: str, tool_names: Sequence[str] = (), reasoning_open: bool = False
    ) -> ReplyParser:
        """A parser for one reply; equal seeds give equal call ids."""
        ...

    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec:
        """A reply that is one call of one of these tools (``many``: or several).

        Raises:
            RequestError: there is no tool to call.
            SchemaError: a tool's parameters cannot be turned into a grammar.
            MissingExtra: llguidance is not installed.
        """
        ...


def dialect_for(chat_template: str | None) -> Dialect:
    """The dialect whose calls the template prints; Hermes when it prints none that is known."""
    template = chat_template or ""
    prints_bare_call = '"name"' in template and '"parameters"' in template
    if "tools" in template and CALL_OPEN not in template and prints_bare_call:
        return PlainJsonDialect()
    return HermesDialect()

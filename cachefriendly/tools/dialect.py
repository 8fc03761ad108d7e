"""What a tool dialect is, and which one a chat template speaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cachefriendly.messages import Message, Tool, ToolCall
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.hermes import HermesDialect
from cachefriendly.tools.plain_json import PlainJsonDialect
from cachefriendly.tools.stream import Reasoning, ReplyParser

__all__ = ["DIALECTS", "Dialect", "dialect_for"]


class Dialect(Protocol):
    """How tools, calls and results are written for a model, and how its calls are read.

    ``markers`` are the texts that are structure, those of the reasoning among them: they must not
    arise from untrusted text. ``reasoning`` are the texts around a reply's reasoning; None when
    it is no single block at the reply's start.
    """

    @property
    def name(self) -> str: ...

    @property
    def markers(self) -> tuple[str, ...]: ...

    @property
    def reasoning(self) -> Reasoning | None: ...

    def speaks(self, template: str) -> bool:
        """Whether the chat template (its source) prints calls in this form."""
        ...

    def opens_reasoning(self, prompt: str) -> bool:
        """Whether the prompt (or generation prompt) leaves a block of reasoning open."""
        ...

    def call_id(self, call_id: str) -> str:
        """A call's id in the form that the templates take; equal ids stay equal."""
        ...

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
        self, *, id_seed: str, tools: Sequence[Tool] = (), reasoning_open: bool = False
    ) -> ReplyParser:
        """A parser for one reply to a request that offered ``tools``; equal seeds give equal call
        ids. The schema of a tool says what type an argument has where the text does not.
        """
        ...

    def text_parser(self, *, id_seed: str, reasoning_open: bool = False) -> ReplyParser:
        """A parser for a reply that holds no calls: none were offered, or they are forbidden."""
        ...

    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec:
        """A reply that is one call of one of these tools (``many``: or several).

        Raises:
            RequestError: there is no tool to call.
            SchemaError: a tool's parameters cannot be turned into a grammar.
            MissingExtra: llguidance is not installed.
        """
        ...


DIALECTS: tuple[Dialect, ...] = (
    HermesDialect(),
    PlainJsonDialect(),
)
"""All of them, in the order in which a template is asked: the more telling marks first."""


def dialect_for(chat_template: str | None) -> Dialect:
    """The dialect whose calls the template prints; Hermes when it prints none that is known."""
    template = chat_template or ""
    for dialect in DIALECTS:
        if dialect.speaks(template):
            return dialect
    return HermesDialect()

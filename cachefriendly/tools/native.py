"""What the dialects share: the tools in words for templates that know none, markers, plain text."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cachefriendly.messages import Message, Tool, ToolCall
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.plain_text import PlainTextParser
from cachefriendly.tools.stream import THINK, Reasoning, ReplyParser

__all__ = ["FormDialect", "NativeDialect", "introduction", "tool_line"]

_INTRODUCTION = """\
# Tools

You can use the tools below to help with the user's request. Each line is one tool, given as a \
JSON object with the JSON Schema of its arguments:
"""
_INSTRUCTIONS = """

To use a tool, reply with its name and its arguments in this form:
"""
_EXAMPLE = ToolCall("the_name_of_the_tool", {"argument": "value"})


@dataclass(frozen=True, kw_only=True)
class NativeDialect(ABC):
    """Base of the dialects; `cachefriendly.tools.dialect.Dialect` is the contract.

    ``structure`` are the texts that are structure beside those of the reasoning, ``stops`` the
    tokens that end a reply beside the model's own.
    """

    name: str
    reasoning: Reasoning | None = THINK
    structure: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()

    @property
    def markers(self) -> tuple[str, ...]:
        return (*self.structure, *(self.reasoning.texts if self.reasoning else ()))

    @abstractmethod
    def speaks(self, template: str) -> bool: ...

    @abstractmethod
    def render_calls(self, calls: Sequence[ToolCall]) -> str: ...

    @abstractmethod
    def parser(
        self, *, id_seed: str, tools: Sequence[Tool] = (), reasoning_open: bool = False
    ) -> ReplyParser: ...

    @abstractmethod
    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec: ...

    def describe(self, tools: Sequence[Tool]) -> str:
        """The block for the end of a system message: the tools, one per line, in this order."""
        return introduction(tools) + _INSTRUCTIONS + self.render_calls([_EXAMPLE])

    def render_result(self, message: Message) -> str:
        """The text of a tool result; templates without tools get it as a user turn."""
        name = f" of {message.name}" if message.name else ""
        return f"Result{name}:\n{message.content}"

    def text_parser(self, *, id_seed: str, reasoning_open: bool = False) -> ReplyParser:
        """A parser for a reply that holds no calls."""
        return PlainTextParser(
            id_seed=id_seed, reasoning=self.reasoning, reasoning_open=reasoning_open
        )

    def opens_reasoning(self, prompt: str) -> bool:
        """Whether the prompt leaves a block of reasoning open."""
        return self.reasoning is not None and self.reasoning.left_open(prompt)

    def call_id(self, call: ToolCall, index: int) -> str:
        """The id of a call, the one at ``index`` of its message, in the form the templates take."""
        return call.id


class CallForm(Protocol):
    """How calls are written: `CallText` and `TagText`."""

    def render(self, calls: Sequence[ToolCall]) -> str: ...


@dataclass(frozen=True, kw_only=True)
class FormDialect(NativeDialect):
    """Calls in one form, as data. A template that holds all texts of ``tells`` speaks it."""

    text: CallForm
    tells: tuple[str, ...]

    def speaks(self, template: str) -> bool:
        return all(text in template for text in self.tells)

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """The text of calls inside an assistant turn."""
        return self.text.render(calls)


def introduction(tools: Sequence[Tool]) -> str:
    """Words that say what follows, and the tools, one per line, in this order."""
    return _INTRODUCTION + "\n".join(map(tool_line, tools))


def tool_line(tool: Tool) -> str:
    """A tool as one line of JSON.

    The schema's keys are sorted: a store that reorders keys (jsonb) costs no ids.
    """
    schema = json.dumps(tool.parameters, ensure_ascii=False, sort_keys=True)
    head = json.dumps(
        {"name": tool.name, "description": tool.description}, ensure_ascii=False
    ).removesuffix("}")
    return f'{{"type": "function", "function": {head}, "parameters": {schema}}}}}'

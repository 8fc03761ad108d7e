"""Grammars as text: a reply that is JSON of a schema, or calls of given tools.

Whitespace is fixed (``", "`` and ``": "``, as models are trained to write), so a model cannot run
away with it. Matching them lives in `cachefriendly.tools.matcher`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cachefriendly.errors import RequestError, SchemaError
from cachefriendly.messages import Tool
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.call_text import CallText, lark_text
from cachefriendly.tools.matcher import GrammarMatcher
from cachefriendly.tools.schema import check_schema, check_tools
from cachefriendly.tools.schema_rewrite import grammar_schema
from cachefriendly.tools.vocabulary import Vocabulary, grammar_problem

__all__ = [
    "GrammarMatcher",
    "Vocabulary",
    "arguments_rule",
    "arguments_schema",
    "call_choice",
    "calls_grammar",
    "calls_or_answer",
    "check_schema",
    "check_tools",
    "json_grammar",
    "json_rule",
    "refuse",
    "value_rule",
    "what_of",
]

_JSON_OPTIONS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def json_grammar(schema: Mapping[str, Any], *, what: str) -> GrammarSpec:
    """A reply that is JSON of ``schema`` and nothing else.

    Objects that list their properties get no others unless the schema asks for them.

    Raises:
        SchemaError: not JSON Schema, or a keyword that cannot be enforced.
        MissingExtra: llguidance is not installed.
    """
    check_schema(schema, what=what)
    lark = f"start: {json_rule(grammar_schema(schema))}\n"
    refuse(lark, what)
    return GrammarSpec(lark, what=what)


def calls_grammar(
    tools: Sequence[Tool], text: CallText, *, markers: Sequence[str] = (), many: bool = False
) -> GrammarSpec:
    """A reply that is one call of one of the tools (``many``: one or more), spelled as in ``text``.

    ``markers`` are those parts of it that are one token where the vocabulary has one for them. A
    tool without parameters is called with ``{}``.

    Raises:
        RequestError: there are no tools.
        SchemaError: names the tool whose parameters cannot be enforced.
        MissingExtra: llguidance is not installed.
    """
    block = f"({call_choice(tools)}) {lark_text(text.after_arguments, markers)}"
    rules = [
        f"call_{index}: {lark_text(text.opening(tool.name), markers, text.id_pattern)}"
        f" arguments_{index}\n"
        f"arguments_{index}: {arguments_rule(tool)}"
        for index, tool in enumerate(tools)
    ]
    more = f" ({lark_text(text.between, markers)} block)*" if many else ""
    begin, end = lark_text(text.begin, markers), lark_text(text.end, markers)
    lines = [f"start: {begin} block{more} {end}", f"block: {block}", *rules]
    lark = "\n".join(lines) + "\n"
    endings = (text.end,) if text.end else ()
    return GrammarSpec(lark, what_of(tools), tuple(markers), endings)


def call_choice(tools: Sequence[Tool]) -> str:
    """The rules ``call_0``, ``call_1``... of the tools as alternatives.

    Raises:
        RequestError: there are no tools.
        SchemaError: a tool's parameters are no schema of an object.
    """
    if not tools:
        raise RequestError("a tool call is required, but the request offers no tools; pass tools")
    check_tools(tools)
    return " | ".join(f"call_{index}" for index in range(len(tools)))


def what_of(tools: Sequence[Tool]) -> str:
    """What a grammar of calls is called in errors."""
    return f"call of {', '.join(repr(tool.name) for tool in tools)}"


def calls_or_answer(calls: GrammarSpec, schema: Mapping[str, Any], *, what: str) -> GrammarSpec:
    """A reply that is what ``calls`` (from `calls_grammar`) describes, or JSON of ``schema``.

    Raises:
        SchemaError: not JSON Schema, or a keyword that cannot be enforced.
    """
    answer = json_grammar(schema, what=what).lark.replace("start:", "answer:", 1)
    lark = "start: calls | answer\n" + calls.lark.replace("start:", "calls:", 1) + answer
    return replace(calls, lark=lark, what=f"{calls.what} or {what}")


def arguments_rule(tool: Tool) -> str:
    """The body of a lark rule for a tool's arguments as JSON.

    Raises:
        SchemaError: names the tool when its schema cannot be enforced.
    """
    arguments = json_rule(arguments_schema(tool))
    refuse(f"start: {arguments}\n", f"tool {tool.name!r}")
    return arguments


def arguments_schema(tool: Tool) -> dict[str, Any]:
    """The schema that a tool's arguments are held to: an object without unknown properties."""
    parameters = {"type": "object", **tool.parameters}
    parameters.setdefault("properties", {})
    return grammar_schema(parameters, close_root=True)


def json_rule(schema: Mapping[str, Any]) -> str:
    """The body of a lark rule for JSON of a schema that `grammar_schema` has seen."""
    return "%json " + json.dumps({**schema, "x-guidance": _JSON_OPTIONS})


def value_rule(schema: Any, root: Mapping[str, Any], *, what: str) -> str:
    """The body of a lark rule for one value as JSON, by the part ``schema`` of ``root``.

    Both are of `arguments_schema`. A schema that is a boolean or missing admits any value.

    Raises:
        SchemaError: ``what`` cannot be enforced.
    """
    definitions = {name: root[name] for name in ("$defs", "definitions") if name in root}
    rule = json_rule({**definitions, **(schema if isinstance(schema, Mapping) else {})})
    refuse(f"start: {rule}\n", what)
    return rule


def refuse(lark: str, what: str) -> None:
    """Raise SchemaError where llguidance cannot compile the lark grammar made of a schema."""
    problem = grammar_problem(lark)
    if problem:
        raise SchemaError(
            f"{what}: the schema cannot be enforced: {problem}; "
            "simplify it, or leave the choice of the tool or the format to the model"
        )

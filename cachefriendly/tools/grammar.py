"""Grammars as text: a reply that is JSON of a schema, or calls of given tools.

Whitespace is fixed (``", "`` and ``": "``, as models are trained to write), so a model cannot run
away with it. Matching them lives in `cachefriendly.tools.matcher`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from cachefriendly.errors import RequestError, SchemaError
from cachefriendly.messages import Tool
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.matcher import GrammarMatcher, marker_rule
from cachefriendly.tools.schema import check_schema, check_tools
from cachefriendly.tools.schema_rewrite import grammar_schema
from cachefriendly.tools.vocabulary import Vocabulary, grammar_problem

__all__ = [
    "GrammarMatcher",
    "Vocabulary",
    "calls_grammar",
    "calls_or_answer",
    "check_schema",
    "check_tools",
    "json_grammar",
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
    lark = f"start: {_json_rule(grammar_schema(schema))}\n"
    _refuse(lark, what)
    return GrammarSpec(lark, what=what)


def calls_grammar(
    tools: Sequence[Tool], *, markers: tuple[str, ...], many: bool = False
) -> GrammarSpec:
    """A reply that is one call of one of the tools (``many``: one or more, a newline between).

    ``markers`` are the texts around each call: an opening and a closing one, or none. A tool
    without parameters is called with ``{}``.

    Raises:
        RequestError: there are no tools.
        SchemaError: names the tool whose parameters cannot be enforced.
        MissingExtra: llguidance is not installed.
    """
    if not tools:
        raise RequestError("a tool call is required, but the request offers no tools; pass tools")
    check_tools(tools)
    rules = [_tool_rules(index, tool) for index, tool in enumerate(tools)]
    body = f'{marker_rule(0)} "\\n" call "\\n" {marker_rule(1)}' if markers else "call"
    lines = [
        'start: block ("\\n" block)*' if many else "start: block",
        f"block: {body}",
        "call: " + " | ".join(f"call_{index}" for index in range(len(tools))),
    ]
    names = ", ".join(repr(tool.name) for tool in tools)
    return GrammarSpec("\n".join([*lines, *rules]) + "\n", what=f"call of {names}", markers=markers)


def calls_or_answer(calls: GrammarSpec, schema: Mapping[str, Any], *, what: str) -> GrammarSpec:
    """A reply that is what ``calls`` (from `calls_grammar`) describes, or JSON of ``schema``.

    Raises:
        SchemaError: not JSON Schema, or a keyword that cannot be enforced.
    """
    answer = json_grammar(schema, what=what).lark.replace("start:", "answer:", 1)
    lark = "start: calls | answer\n" + calls.lark.replace("start:", "calls:", 1) + answer
    return GrammarSpec(lark, what=f"{calls.what} or {what}", markers=calls.markers)


def _tool_rules(index: int, tool: Tool) -> str:
    parameters = {"type": "object", **tool.parameters}
    parameters.setdefault("properties", {})
    arguments = _json_rule(grammar_schema(parameters, close_root=True))
    _refuse(f"start: {arguments}\n", f"tool {tool.name!r}")
    head = json.dumps({"name": tool.name}, ensure_ascii=False).removesuffix("}")
    opening = json.dumps(head + ', "arguments": ', ensure_ascii=False)
    return f'call_{index}: {opening} arguments_{index} "}}"\narguments_{index}: {arguments}'


def _json_rule(schema: Mapping[str, Any]) -> str:
    return "%json " + json.dumps({**schema, "x-guidance": _JSON_OPTIONS})


def _refuse(lark: str, what: str) -> None:
    problem = grammar_problem(lark)
    if problem:
        raise SchemaError(
            f"{what}: the schema cannot be enforced: {problem}; "
            "simplify it, or leave the choice of the tool or the format to the model"
        )

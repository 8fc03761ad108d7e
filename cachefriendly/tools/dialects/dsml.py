# ruff: noqa: RUF001, RUF002 (the bar of the model's token is a wide one)
"""The dialect of DeepSeek from V3.2 on: calls as markup whose tags hold the token ``｜DSML｜``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cachefriendly.errors import SchemaError
from cachefriendly.messages import Tool, ToolCall
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.arguments import arguments_of
from cachefriendly.tools.call_json import BrokenCall, read_json
from cachefriendly.tools.call_text import lark_text
from cachefriendly.tools.grammar import call_choice, json_grammar, what_of
from cachefriendly.tools.keywords import (
    COMBINING,
    ENUMERATING,
    implied_types,
    limits,
    schema_leaves,
)
from cachefriendly.tools.marked import MarkedParser
from cachefriendly.tools.native import NativeDialect
from cachefriendly.tools.schema import TYPES
from cachefriendly.tools.stream import Reasoning
from cachefriendly.tools.text_terminal import text_terminal
from cachefriendly.tools.typed import argument_schema, is_text, typed_value

__all__ = ["DsmlDialect", "DsmlParser"]

TOKEN = "｜DSML｜"
BLOCKS = ("function_calls", "tool_calls")
INVOKE_OPEN, INVOKE_CLOSE = f"<{TOKEN}invoke", f"</{TOKEN}invoke>"
PARAMETER_OPEN, PARAMETER_CLOSE = f"<{TOKEN}parameter", f"</{TOKEN}parameter>"
_BLOCK_TAGS = tuple(f"<{slash}{TOKEN}{block}>" for block in BLOCKS for slash in ("", "/"))
_END = re.compile(f"{INVOKE_CLOSE}|(?={'|'.join((INVOKE_OPEN, *_BLOCK_TAGS))})")
_HEAD = re.compile(r'\s+name="(?P<name>[^"]*)"\s*>\s*')
_PARAMETER = re.compile(
    rf'{PARAMETER_OPEN}\s+name="(?P<key>[^"]*)"(?:\s+string="(?P<string>true|false)")?\s*>'
    rf"(?P<value>(?:(?!{PARAMETER_OPEN}).)*?){PARAMETER_CLOSE}\s*",
    re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class DsmlDialect(NativeDialect):
    """``block`` names the tag around the calls: V3.2 has ``function_calls``, V4 ``tool_calls``."""

    block: str = BLOCKS[0]

    name: str = "dsml"
    structure: tuple[str, ...] = (
        TOKEN, INVOKE_OPEN, INVOKE_CLOSE, PARAMETER_OPEN, PARAMETER_CLOSE, *_BLOCK_TAGS,
    )  # fmt: skip

    def speaks(self, template: str) -> bool:
        return TOKEN in template and f"{self.block}>" in template

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        texts = "".join(
            _invoke(call.name)
            + "".join(_parameter(key, value) for key, value in call.arguments.items())
            + f"{INVOKE_CLOSE}\n"
            for call in calls
        )
        return f"<{TOKEN}{self.block}>\n{texts}</{TOKEN}{self.block}>"

    def parser(
        self, *, id_seed: str, tools: Sequence[Tool] = (), reasoning_open: bool = False
    ) -> DsmlParser:
        return DsmlParser(
            tools, id_seed=id_seed, reasoning=self.reasoning, reasoning_open=reasoning_open
        )

    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec:
        """Text as it is where nothing but text is wanted, everything else as JSON."""
        begin, end = _lark(f"\n\n<{TOKEN}{self.block}>\n"), _lark(f"</{TOKEN}{self.block}>")
        lines = [
            f"start: {begin} {'block+' if many else 'block'} {end}",
            f"block: ({call_choice(tools)}) {_lark(f'{INVOKE_CLOSE}{chr(10)}')}",
        ]
        for index, tool in enumerate(tools):
            lines.extend(_tool_rules(f"call_{index}", tool))
        endings = (f"{PARAMETER_CLOSE}\n", f"</{TOKEN}{self.block}>", f"{INVOKE_CLOSE}\n")
        return GrammarSpec(
            "\n".join([*lines, ""]), what_of(tools), (TOKEN, PARAMETER_CLOSE), endings
        )


class DsmlParser(MarkedParser):
    """A call ends at its closing tag, or where another one or the end of the block stands.

    Text in a parameter is exact. Where a tag does not say whether it is text, the schema does.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        *,
        id_seed: str,
        reasoning: Reasoning | None,
        reasoning_open: bool = False,
    ) -> None:
        super().__init__(
            id_seed=id_seed,
            opens=(INVOKE_OPEN,),
            drops=(INVOKE_CLOSE, PARAMETER_CLOSE, *_BLOCK_TAGS),
            reasoning=reasoning,
            reasoning_open=reasoning_open,
        )
        self._schemas = {tool.name: tool.parameters for tool in tools}

    def _call(self, final: bool) -> bool:
        end = _END.search(self._pending)
        if end is None and not final:
            return False
        body = self._pending[: end.start() if end else None]
        stop = end.end() if end else len(self._pending)
        return self._end_call(stop, lambda: self._read(body), whole=end is not None)

    def _read(self, body: str) -> tuple[str, dict[str, Any]]:
        head = _HEAD.match(body)
        if head is None or not head["name"]:
            raise BrokenCall("the call names no tool")
        name, at = head["name"], head.end()
        schema = self._schemas.get(name, {})
        arguments: dict[str, Any] = {}
        while found := _PARAMETER.match(body, at):
            arguments[found["key"]] = _value(found, schema, name)
            at = found.end()
        if body[at:].strip():
            raise BrokenCall("malformed parameters", name)
        return name, arguments


def _value(found: re.Match[str], schema: Mapping[str, Any], name: str) -> Any:
    text = found["value"]
    if found["string"] == "true":
        return text
    if found["string"] == "false":
        return read_json(text, name)
    return typed_value(text, argument_schema(schema, found["key"]), schema)


def _invoke(name: str) -> str:
    return f'{INVOKE_OPEN} name="{name}">\n'


def _parameter(key: str, value: Any) -> str:
    text = isinstance(value, str)
    spelled = value if text else json.dumps(value, ensure_ascii=False)
    kind = "true" if text else "false"
    return f'{PARAMETER_OPEN} name="{key}" string="{kind}">{spelled}{PARAMETER_CLOSE}\n'


def _lark(text: str) -> str:
    return lark_text(text, (TOKEN,))


def _tool_rules(rule: str, tool: Tool) -> Iterator[str]:
    """Lark lines for a call up to its closing tag.

    Raises:
        SchemaError: the parameters cannot be enforced one by one.
    """
    arguments = arguments_of(tool)
    if any('"' in name for name in (tool.name, *arguments.schemas)):
        raise SchemaError(f"tool {tool.name!r}: no name may hold a quotation mark in this form")
    parts = []
    for number, (key, schema) in enumerate(arguments.schemas.items()):
        part = f"{rule}_{number}"
        forms = list(_forms(key, schema, arguments.root, tool.name))
        names = [f"{part}_{form}" for form in range(len(forms))]
        opening = _lark(f'{PARAMETER_OPEN} name="{key}" string=')
        yield f"{part}: {opening} ({' | '.join(names)})"
        for name, form in zip(names, forms, strict=True):
            yield from form.rules(name)
        parts.append(part if key in arguments.required else f"{part}?")
    yield f"{rule}: {_lark(_invoke(tool.name))} {' '.join(parts)}"


@dataclass(frozen=True)
class _Form:
    """One way to write a value: a terminal of free text, or a lark expression."""

    text: bool
    lark: str
    free: bool = False

    def rules(self, name: str) -> Iterator[str]:
        attribute = '"true">' if self.text else '"false">'
        if self.free:
            yield f"{name}: {_quoted(attribute)} {name}_text {_quoted(chr(10))}"
            yield f"{name}_text@1: {self.lark}"
        else:
            close = _lark(f"{PARAMETER_CLOSE}\n")
            yield f"{name}: {_quoted(attribute)} ({self.lark}) {close}"


def _forms(key: str, schema: Any, root: Mapping[str, Any], tool: str) -> Iterator[_Form]:
    """The ways in which the value of one argument may be written."""
    what = f"tool {tool!r}, argument {key!r}"
    leaves: Sequence[Any]
    try:
        leaves = list(schema_leaves(schema, root, what=what))
    except SchemaError:  # no list of alternatives: JSON follows the whole
        leaves = [schema]
    definitions = {name: root[name] for name in ("$defs", "definitions") if name in root}
    for leaf in leaves:
        text = _text_form(leaf, root, what)
        if text is not None:
            yield text
        if text is None or (text.free and not is_text(leaf, root)):
            rule = json_grammar({**definitions, **leaf}, what=what).lark.removeprefix("start: ")
            yield _Form(False, rule.strip())


def _text_form(schema: Mapping[str, Any], root: Mapping[str, Any], what: str) -> _Form | None:
    """Bare text; None where JSON must hold it to its schema."""
    anything = not any(key in schema for key in ENUMERATING) and implied_types(schema) == TYPES
    if any(key in schema for key in COMBINING) or not (anything or is_text(schema, root)):
        return None
    if not any(key in schema for key in ENUMERATING):
        return _Form(True, f"({text_terminal(schema, what=what)}) & /[^｜]*/", free=True)
    texts = [text for text in schema.get("enum", ()) if isinstance(text, str) and "｜" not in text]
    exact = texts and "const" not in schema and not limits(schema, "string")
    return _Form(True, " | ".join(map(_quoted, texts))) if exact else None


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)

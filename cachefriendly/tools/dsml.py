# ruff: noqa: RUF001, RUF002 (the bar of the model's token is a wide one)
"""The dialect of DeepSeek from V3.2 on: calls as markup whose tags hold the token ``｜DSML｜``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cachefriendly.errors import SchemaError
from cachefriendly.messages import Tool, ToolCall
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.call_json import BrokenCall, read_json
from cachefriendly.tools.call_text import lark_text
from cachefriendly.tools.grammar import arguments_rule, call_choice, json_grammar, what_of
from cachefriendly.tools.marked import MarkedParser
from cachefriendly.tools.native import NativeDialect
from cachefriendly.tools.stream import Reasoning
from cachefriendly.tools.typed import is_text, typed_value

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
# What a string's schema may say for its text to be held to it outside of JSON.
_TEXT_KEYS = frozenset(
    {"type", "title", "description", "default", "examples", "minLength", "maxLength", "enum"}
)
_TOO_MUCH = ("$ref", "anyOf", "oneOf", "allOf", "not", "if", "patternProperties", "minProperties")


@dataclass(frozen=True)
class DsmlDialect(NativeDialect):
    """``block`` names the tag around the calls: V3.2 has ``function_calls``, V4 ``tool_calls``."""

    block: str = BLOCKS[0]

    name: ClassVar[str] = "dsml"
    structure: ClassVar[tuple[str, ...]] = (
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
    return typed_value(text, schema.get("properties", {}).get(found["key"]), schema)


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
    arguments_rule(tool)  # refuses what cannot be enforced at all
    root = tool.parameters
    odd = [key for key in _TOO_MUCH if key in root]
    if odd:
        raise SchemaError(
            f"tool {tool.name!r}: {odd[0]} at the root cannot be enforced in this model's form of "
            "calls; list the arguments under properties"
        )
    properties: Mapping[str, Any] = root.get("properties", {})
    required = {*root.get("required", ())}
    parts = []
    for number, key in enumerate([*properties, *sorted(required.difference(properties))]):
        part = f"{rule}_{number}"
        forms = list(_forms(key, properties.get(key, {}), root, tool.name))
        names = [f"{part}_{form}" for form in range(len(forms))]
        opening = _lark(f'{PARAMETER_OPEN} name="{key}" string=')
        yield f"{part}: {opening} ({' | '.join(names)})"
        for name, form in zip(names, forms, strict=True):
            yield from form.rules(name)
        parts.append(part if key in required else f"{part}?")
    yield f"{rule}: {_lark(_invoke(tool.name))} {' '.join(parts)}"


@dataclass(frozen=True)
class _Form:
    """One way to write a value: a pattern of free text, or a lark expression."""

    text: bool
    lark: str

    def rules(self, name: str) -> Iterator[str]:
        attribute = '"true">' if self.text else '"false">'
        if self.text and self.lark.startswith("/"):
            yield f"{name}: {_quoted(attribute)} {name}_text {_quoted(chr(10))}"
            yield f"{name}_text@1: {self.lark}"
        else:
            close = _lark(f"{PARAMETER_CLOSE}\n")
            yield f"{name}: {_quoted(attribute)} ({self.lark}) {close}"


def _forms(key: str, schema: Any, root: Mapping[str, Any], tool: str) -> Iterator[_Form]:
    """The ways in which the value of one argument may be written."""
    if isinstance(schema, Mapping) and set(schema) <= {"anyOf", "title", "description", "default"}:
        choices = schema.get("anyOf", ())
        for choice in choices:
            yield from _forms(key, choice, root, tool)
        if choices:
            return
    text = _text_rule(schema, root)
    if text is not None:
        yield _Form(True, text)
        return
    definitions = {name: root[name] for name in ("$defs", "definitions") if name in root}
    what = f"tool {tool!r}, argument {key!r}"
    inner = schema if isinstance(schema, Mapping) else {}
    rule = json_grammar({**definitions, **inner}, what=what).lark.removeprefix("start: ")
    yield _Form(False, rule.strip())


def _text_rule(schema: Any, root: Mapping[str, Any]) -> str | None:
    """Lark of bare text; None when JSON must hold it to its schema."""
    if not isinstance(schema, Mapping) or not set(schema) <= _TEXT_KEYS:
        return None
    if not is_text(schema, root):
        return None
    if "enum" in schema:
        texts = [text for text in schema["enum"] if isinstance(text, str)]
        plain = all("｜" not in text for text in texts)
        return " | ".join(map(_quoted, texts)) if plain and texts else None
    least, most = schema.get("minLength", 0), schema.get("maxLength", "")
    return f"/[^｜]{{{least},{most}}}/" if least or most != "" else "/[^｜]*/"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)

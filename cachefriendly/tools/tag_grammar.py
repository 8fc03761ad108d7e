"""Grammars of calls whose arguments stand one by one: text as it is, other values as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cachefriendly.errors import SchemaError
from cachefriendly.messages import Tool
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.call_text import lark_text
from cachefriendly.tools.grammar import arguments_schema, call_choice, refuse, value_rule, what_of
from cachefriendly.tools.tag_text import TagText, spelled_value
from cachefriendly.tools.typed import text_schema

__all__ = ["tagged_grammar"]

_COMBINERS = ("anyOf", "oneOf", "allOf", "$ref", "if", "not", "dependentSchemas", "minProperties")


def tagged_grammar(tools: Sequence[Tool], text: TagText, *, many: bool = False) -> GrammarSpec:
    """A reply that is one call of one of the tools (``many``: one or more), spelled as in ``text``.

    Required arguments come first, each at most once. Where a value may be text or something
    else, it is text. Of the rules for text, length, pattern and enumerations are kept; a format
    is only a hint.

    Raises:
        RequestError: there are no tools.
        SchemaError: names the tool whose parameters cannot be enforced.
        MissingExtra: llguidance is not installed.
    """
    choice = call_choice(tools)
    writer = _Writer(text)
    rules = [rule for index, tool in enumerate(tools) for rule in writer.tool(index, tool)]
    begin, end = writer.lark(text.begin), writer.lark(text.end)
    block = f"({choice})" if text.shared else f"{begin} ({choice}) {end}"
    between = "" if text.shared else writer.lark(text.between)
    more = f" ({between} block)*" if many else ""
    start = f"{begin} block{more} {end}" if text.shared else f"block{more}"
    lines = [f"start: {start}", f"block: {block}", *rules]
    lark = "\n".join(lines) + "\n"
    endings = (text.end,) if text.shared else ()
    return GrammarSpec(lark, what_of(tools), writer.markers, endings)


class _Writer:
    def __init__(self, text: TagText) -> None:
        self._text = text
        ending = text.value_end.rstrip()
        self.markers = (*text.markers, ending)
        self._ending = len(text.markers)
        self._after_ending = text.value_end[len(ending) :]

    def lark(self, text: str) -> str:
        return lark_text(text, self._text.markers)

    def tool(self, index: int, tool: Tool) -> Iterator[str]:
        schema = arguments_schema(tool)
        found = [key for key in _COMBINERS if key in schema]
        if found:
            raise SchemaError(
                f"tool {tool.name!r}: {found[0]} at the root of the parameters cannot be enforced "
                "where arguments are written one by one; simplify it, or leave the choice of the "
                "tool to the model"
            )
        properties: dict[str, Any] = dict(schema["properties"])
        required = list(schema.get("required", ()))
        properties |= {key: {} for key in required if key not in properties}
        keys = [*required, *(key for key in properties if key not in required)]
        names = [f"argument_{index}_{number}" for number in range(len(keys))]
        parts = [
            name if key in required else f"{name}?" for name, key in zip(names, keys, strict=True)
        ]
        head = self.lark(f"{self._text.call_open}{tool.name}{self._text.name_end}")
        yield f"call_{index}: {head} {' '.join(parts)} {self.lark(self._text.call_end)}"
        for name, key in zip(names, keys, strict=True):
            yield from self._argument(name, key, properties[key], schema, tool)

    def _argument(
        self, name: str, key: str, schema: Any, root: Mapping[str, Any], tool: Tool
    ) -> Iterator[str]:
        head = self.lark(f"{self._text.key_open}{key}{self._text.key_end}")
        what = f"tool {tool.name!r}: argument {key!r}"
        choices = _choices(schema)
        text = text_schema(schema, root)
        if choices is not None:
            spelled = " | ".join(json.dumps(text, ensure_ascii=False) for text in choices)
            yield f"{name}: {head} ({spelled}) {self.lark(self._text.value_end)}"
        elif text is not None:
            pattern = _text_pattern(text)
            refuse(f"start: {pattern}\n", what)
            yield f"{name}: {head} text_{name} {self.lark(self._after_ending)}"
            yield f"text_{name}@{self._ending}: {pattern}"
        else:
            yield f"{name}: {head} value_{name} {self.lark(self._text.value_end)}"
            yield f"value_{name}: {value_rule(schema, root, what=what)}"


def _choices(schema: Any) -> list[str] | None:
    """The values of an enumeration as they are written."""
    if not isinstance(schema, Mapping) or not ("enum" in schema or "const" in schema):
        return None
    values = [schema["const"]] if "const" in schema else schema["enum"]
    return [spelled_value(value) for value in values]


def _text_pattern(schema: Mapping[str, Any]) -> str:
    """A lark regular expression for a text."""
    pattern = schema.get("pattern")
    if pattern is None:
        least, most = schema.get("minLength", 0), schema.get("maxLength", "")
        count = f"{{{least},{most}}}" if least or most != "" else "*"
        return f"/(.|\\n){count}/"
    begin = "" if pattern.startswith("^") else "(.|\\n)*"
    end = "" if pattern.endswith("$") else "(.|\\n)*"
    body = pattern.removeprefix("^").removesuffix("$").replace("/", "\\/")
    return f"/{begin}({body}){end}/"

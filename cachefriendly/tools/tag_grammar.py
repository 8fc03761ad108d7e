"""Grammars of calls whose arguments stand one by one: text as it is, other values as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cachefriendly.errors import SchemaError
from cachefriendly.messages import Tool
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.arguments import arguments_of
from cachefriendly.tools.bare_value import bare_value, narrowed
from cachefriendly.tools.call_text import lark_text
from cachefriendly.tools.grammar import call_choice, refuse, value_rule, what_of
from cachefriendly.tools.tag_text import TagText

__all__ = ["tagged_grammar"]


def tagged_grammar(tools: Sequence[Tool], text: TagText, *, many: bool = False) -> GrammarSpec:
    """A reply that is one call of one of the tools (``many``: one or more), spelled as in ``text``.

    Required arguments come first, each at most once. Where a value may be text or something
    else, it is text (`bare_value`). No text holds what would end it or begin another argument.

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
        arguments = arguments_of(tool)
        keys = arguments.required_first
        if not self._text.can_name(tool.name, *keys):
            raise SchemaError(
                f"tool {tool.name!r}: a name of the tool or of an argument cannot be written in "
                "this model's form of calls; use letters, digits and underscores"
            )
        names = [f"argument_{index}_{number}" for number in range(len(keys))]
        parts = [
            name if key in arguments.required else f"{name}?"
            for name, key in zip(names, keys, strict=True)
        ]
        head = self.lark(f"{self._text.call_open}{tool.name}{self._text.name_end}")
        yield f"call_{index}: {head} {' '.join(parts)} {self.lark(self._text.call_end)}"
        for name, key in zip(names, keys, strict=True):
            what = f"tool {tool.name!r}: argument {key!r}"
            yield from self._argument(name, key, arguments.schemas[key], arguments.root, what)

    def _argument(
        self, name: str, key: str, schema: Any, root: Mapping[str, Any], what: str
    ) -> Iterator[str]:
        head = self.lark(f"{self._text.key_open}{key}{self._text.key_end}")
        bare = bare_value(schema, root, what=what)
        if bare is None:
            rule = value_rule(narrowed(schema, root, what=what), root, what=what)
            yield f"{name}: {head} value_{name} {self.lark(self._text.value_end)}"
            yield f"value_{name}: {rule}"
        elif bare.terminal is None:
            words = [text for text in bare.texts if self._text.can_hold(text)]
            spelled = " | ".join(json.dumps(text, ensure_ascii=False) for text in words)
            yield f"{name}: {head} ({spelled}) {self.lark(self._text.value_end)}"
        else:
            terminal = bare.lark(self._text.avoided)
            refuse(f"start: TEXT\nTEXT: {terminal}\n", what)
            yield f"{name}: {head} text_{name} {self.lark(self._after_ending)}"
            yield f"text_{name}@{self._ending}: {terminal}"

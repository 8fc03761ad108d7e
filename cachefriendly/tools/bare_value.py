"""What may stand bare between tags so that it is read as a value of a schema, as lark.

Bare text carries no type (`cachefriendly.tools.typed`), so texts that would be read as something
else, which the schema does not admit, are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cachefriendly.errors import SchemaError
from cachefriendly.tools.keywords import ENUMERATING, implied_types, limits, schema_leaves
from cachefriendly.tools.tag_text import spelled_value
from cachefriendly.tools.text_terminal import ANY_TEXT, text_terminal, without
from cachefriendly.tools.typed import allowed_types, has_type, json_type, typed_value

__all__ = ["BareValue", "bare_value", "narrowed"]

_SPACE = r"[\s\x1c-\x1f]*"
_LITERALS = {
    "number": "-?[0-9](?s:.)*",
    "integer": "-?[0-9](?s:.)*",
    "boolean": "(true|false|True|False)",
    "null": "(null|None)",
    "object": r"\{(?s:.)*\}",
    "array": r"\[(?s:.)*\]",
}
_NAMES = {"null": ("null",), "boolean": ("true", "false")}


@dataclass(frozen=True, slots=True)
class BareValue:
    """``texts`` that may stand as they are, and a ``terminal`` of others; None for no others."""

    texts: tuple[str, ...]
    terminal: str | None

    def lark(self, avoided: Sequence[str]) -> str:
        """The terminal of all of them, without those that hold one of the ``avoided`` texts."""
        words = " | ".join(json.dumps(text, ensure_ascii=False) for text in self.texts)
        parts = [f"({part})" for part in (self.terminal, words) if part]
        held = "|".join(re.escape(text).replace("/", r"\/") for text in avoided)
        return without(" | ".join(parts), f"(?s:.)*({held})(?s:.)*")


def bare_value(schema: Any, root: Mapping[str, Any], *, what: str) -> BareValue | None:
    """The texts for an argument; None where it is never text, so that JSON serves.

    Where the argument may be text or something else, it is text, one of the values that are
    enumerated, or a value of a type that has only a few.

    Raises:
        SchemaError: the schema of ``what`` cannot be followed, or admits no text that would be
            read as it is meant.
    """
    types = allowed_types(schema, root)
    if types and "string" not in types:
        return None
    leaves = list(schema_leaves(schema, root, what=what))
    collected = _Collected(what)
    for leaf in leaves:
        collected.add(leaf)
    if not (collected.texts or collected.enumerated):
        return None
    read = [
        spelled_value(value)
        for value in collected.enumerated
        if _same(typed_value(spelled_value(value), schema, root), value)
    ]
    found = BareValue((*read, *collected.names), collected.terminal)
    if not found.texts and found.terminal is None:
        raise SchemaError(
            f"{what}: no value of the schema can be told from text; simplify it, or leave the "
            "choice of the tool to the model"
        )
    return found


def narrowed(schema: Any, root: Mapping[str, Any], *, what: str) -> Any:
    """The same schema with every alternative's types named."""
    if allowed_types(schema, root):
        return schema
    leaves = schema_leaves(schema, root, what=what)
    return {"anyOf": [{**leaf, "type": list(implied_types(leaf))} for leaf in leaves]}


class _Collected:
    """What the alternatives of one argument admit."""

    def __init__(self, what: str) -> None:
        self.enumerated: list[Any] = []
        self.texts: list[str] = []
        self._what = what
        self._limited: set[str] = set()
        self._free: set[str] = set()

    def add(self, leaf: Mapping[str, Any]) -> None:
        if any(key in leaf for key in ENUMERATING):
            self._enumerate([leaf["const"]] if "const" in leaf else leaf["enum"], leaf)
            return
        for kind in implied_types(leaf):
            if kind == "string":
                self.texts.append(text_terminal(leaf, what=self._what))
            else:
                (self._limited if limits(leaf, kind) else self._free).add(kind)

    def _enumerate(self, values: Sequence[Any], leaf: Mapping[str, Any]) -> None:
        for value in values:
            kind = json_type(value)
            whole = kind == "number" and value == int(value)
            kinds = {kind, "integer"} if whole else {kind}
            if has_type(value, implied_types(leaf)):
                self.enumerated.append(value)
            self._limited.update(kinds - {"string", "null"})

    @property
    def names(self) -> tuple[str, ...]:
        """The values of types that have only a few, where text may be anything but them."""
        if not self.texts or ANY_TEXT in self.texts:
            return ()
        return tuple(name for kind in sorted(self._free & set(_NAMES)) for name in _NAMES[kind])

    @property
    def terminal(self) -> str | None:
        if not self.texts:
            return None
        free = self._free | ({"integer"} if "number" in self._free else set())
        misread = [_LITERALS[kind] for kind in sorted(self._limited - free)]
        texts = " | ".join(f"({text})" for text in self.texts)
        return without(texts, *(f"{_SPACE}{text}{_SPACE}" for text in misread))


def _same(read: Any, value: Any) -> bool:
    return bool(read == value) and json_type(read) == json_type(value)

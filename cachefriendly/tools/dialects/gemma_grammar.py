"""Gemma 4's values held to a JSON Schema: lark rules, narrower than the schema, never wider."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cachefriendly.errors import SchemaError
from cachefriendly.messages import Tool
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.arguments import Arguments, arguments_of
from cachefriendly.tools.call_json import BrokenCall
from cachefriendly.tools.call_text import lark_text
from cachefriendly.tools.dialects.gemma_values import QUOTE, read_object, written
from cachefriendly.tools.grammar import call_choice, json_grammar, what_of
from cachefriendly.tools.keywords import implied_types, schema_parts
from cachefriendly.tools.schema import TYPES, referenced
from cachefriendly.tools.text_terminal import ANY_TEXT, text_terminal, without
from cachefriendly.tools.typed import has_type

__all__ = ["gemma_calls_grammar"]

# Keywords that limit a value in a way these rules cannot follow.
_REFUSED = (
    "patternProperties", "minProperties", "maxProperties", "propertyNames", "dependentRequired",
    "dependentSchemas", "dependencies", "unevaluatedProperties", "prefixItems", "additionalItems",
    "uniqueItems", "contains", "unevaluatedItems",
)  # fmt: skip
_KEY = re.compile(r"[^\s:{}\[\],\"<>]+")
_JSON_SCALARS = frozenset({"integer", "number", "boolean", "null"})
_ENDED = "(?s:.)*" + QUOTE.replace("|", r"\|") + "(?s:.)*"
"""Text that holds the closing quotes."""
_ANY = (
    'any_value: any_string | any_scalar | "[" (any_value ("," any_value)*)? "]"'
    ' | "{" (any_pair ("," any_pair)*)? "}"'
)


def gemma_calls_grammar(
    tools: Sequence[Tool], opening: str, closing: str, *, many: bool = False
) -> GrammarSpec:
    """A reply that is one call of one of the tools (``many``: one or more).

    Raises:
        RequestError: there are no tools.
        SchemaError: names the tool whose parameters cannot be enforced.
        MissingExtra: llguidance is not installed.
    """
    markers = (opening, closing, QUOTE)
    lines = [
        f"start: {'block+' if many else 'block'}",
        f"block: ({call_choice(tools)}) {lark_text(closing, markers)}",
    ]
    quote = lark_text(QUOTE, markers)
    lines.append(f"any_string: {quote} any_text")
    lines.append(f"any_text@2: {without(ANY_TEXT, _ENDED)}")
    lines.append("any_scalar: " + _json_rule({"type": sorted(_JSON_SCALARS)}, "any value"))
    lines.append('any_pair: /[A-Za-z_][A-Za-z0-9_]*/ ":" any_value')
    lines.append(_ANY)
    for index, tool in enumerate(tools):
        arguments = arguments_of(tool)
        rules = _Rules(f"call_{index}", tool, arguments, markers)
        body = rules.arguments()
        head = lark_text(f"{opening}call:{tool.name}", markers)
        lines.extend([f"call_{index}: {head} {body}", *rules.lines])
    return GrammarSpec("\n".join([*lines, ""]), what_of(tools), markers, (QUOTE, "}", "]"))


def _json_rule(schema: Mapping[str, Any], what: str) -> str:
    return json_grammar(schema, what=what).lark.removeprefix("start: ").strip()


class _Rules:
    """The rules of one tool's arguments; each method gives a lark expression."""

    def __init__(
        self, prefix: str, tool: Tool, arguments: Arguments, markers: Sequence[str]
    ) -> None:
        self.lines: list[str] = []
        self._prefix = prefix
        self._what = f"tool {tool.name!r}"
        self._arguments = arguments
        self._markers = markers
        self._references: dict[str, str] = {}

    def arguments(self) -> str:
        return self._fields(self._arguments.schemas, self._arguments.required)

    def value(self, schema: Any) -> str:
        parts = schema_parts(schema, self._arguments.root, what=self._what)
        if parts and "$ref" in schema:
            return self._reference(schema["$ref"])
        ways = self._of_leaf(schema) if parts is None else [self.value(part) for part in parts]
        if not ways:
            raise self._refusal("a schema that admits nothing")
        return _choice(ways)

    def _of_leaf(self, leaf: Any) -> list[str]:
        if not isinstance(leaf, Mapping):
            return ["any_value"]
        refused = next((key for key in _REFUSED if leaf.get(key)), None)
        if refused:
            raise self._refusal(refused)
        if "const" in leaf or "enum" in leaf:
            return self._literals(leaf.get("enum", [leaf.get("const")]), leaf)
        kinds = implied_types(leaf)
        if len(kinds) == len(TYPES):
            return ["any_value"]
        return [self._of_type(kind, leaf) for kind in kinds]

    def _of_type(self, name: str, schema: Mapping[str, Any]) -> str:
        if name == "string":
            return self._string(schema)
        if name == "array":
            return self._array(schema)
        if name == "object":
            return self._object(schema)
        return self._named(_json_rule({**schema, "type": name}, self._what))

    def _string(self, schema: Mapping[str, Any]) -> str:
        """Text up to the closing quotes, which the terminal of a line ``name@2`` ends at."""
        terminal = text_terminal(schema, what=self._what)
        if terminal == ANY_TEXT:
            return "any_string"
        name = f"{self._prefix}_{len(self.lines)}"
        self.lines.append(f"{name}@2: {without(terminal, _ENDED)}")
        return f"{lark_text(QUOTE, self._markers)} {name}"

    def _array(self, schema: Mapping[str, Any]) -> str:
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if most == 0:
            return '"[" "]"'
        item = self._named(self.value(schema.get("items", {})))
        if least == 0 and most is None:
            return f'"[" ({item} ("," {item})*)? "]"'
        upper = "" if most is None else most - 1
        several = f'{item} ("," {item}){{{max(least - 1, 0)},{upper}}}'
        return f'"[" {several} "]"' if least else f'"[" ({several})? "]"'

    def _object(self, schema: Mapping[str, Any]) -> str:
        listed: Mapping[str, Any] = schema.get("properties", {})
        required = tuple(schema.get("required", ()))
        others = schema.get("additionalProperties", {})
        if not listed and not required:
            return '"{" "}"' if others is False else self._map(others)
        unlisted = {key: others for key in required if key not in listed}
        schemas = {**listed, **unlisted}
        possible = {key: inner for key, inner in schemas.items() if inner is not False}
        return self._fields(possible, required)

    def _fields(self, schemas: Mapping[str, Any], required: Sequence[str]) -> str:
        """An object of listed keys in their order."""
        if not set(required) <= set(schemas):
            raise self._refusal("a required key that may not be given")
        rest = self._named('""')
        fresh: str | None = None
        for key, inner in reversed([*schemas.items()]):
            if not _KEY.fullmatch(key):
                raise self._refusal(f"the key {key!r}")
            pair = self._named(f"{self._text(key + ':')} {self.value(inner)}")
            own = f"{pair} {rest}"
            fresh = self._named(own if key in required else _choice([own, fresh or '""']))
            comma = f'"," {pair}'
            rest = self._named(f"{comma if key in required else f'({comma})?'} {rest}")
        return f'"{{" {fresh or ""} "}}"'

    def _map(self, schema: Any) -> str:
        pair = self._named(f'/[A-Za-z_][A-Za-z0-9_]*/ ":" {self.value(schema)}')
        return f'"{{" ({pair} ("," {pair})*)? "}}"'

    def _literals(self, values: Sequence[Any], leaf: Mapping[str, Any]) -> list[str]:
        """Those of a leaf's type that are read back as they are."""
        fitting = [value for value in values if has_type(value, implied_types(leaf))]
        return [self._text(written(value)) for value in fitting if _reads_back(value)]

    def _reference(self, reference: str) -> str:
        """A rule of its own, so that a schema may refer to itself."""
        if reference not in self._references:
            name = f"{self._prefix}_ref_{len(self._references)}"
            self._references[reference] = name
            target = referenced(reference, self._arguments.root)
            self.lines.append(f"{name}: {self.value(target)}")
        return self._references[reference]

    def _named(self, expression: str) -> str:
        name = f"{self._prefix}_{len(self.lines)}"
        self.lines.append(f"{name}: {expression}")
        return name

    def _text(self, text: str) -> str:
        return lark_text(text, self._markers)

    def _refusal(self, key: str) -> SchemaError:
        return SchemaError(
            f"{self._what}: {key} cannot be enforced in this model's form of calls; simplify the "
            "schema, or leave the choice of the tool to the model"
        )


def _reads_back(value: Any) -> bool:
    try:
        return read_object(f"{{x:{written(value)}}}", "") == {"x": value}
    except BrokenCall:
        return False


def _choice(parts: Sequence[str]) -> str:
    return f"({' | '.join(parts)})"

"""Gemma 4's values held to a JSON Schema: lark rules, narrower than the schema, never wider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cachefriendly.errors import SchemaError
from cachefriendly.messages import Tool
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.call_text import lark_text
from cachefriendly.tools.gemma_values import QUOTE, written
from cachefriendly.tools.grammar import (
    arguments_rule,
    arguments_schema,
    call_choice,
    json_grammar,
    what_of,
)
from cachefriendly.tools.schema import TYPES

__all__ = ["gemma_calls_grammar"]

# Keywords that narrow a value in a way these rules cannot follow.
_REFUSED = (
    "allOf", "not", "if", "dependentSchemas", "dependentRequired", "patternProperties",
    "propertyNames", "minProperties", "maxProperties", "unevaluatedProperties", "prefixItems",
    "uniqueItems", "contains", "unevaluatedItems",
)  # fmt: skip
_JSON_SCALARS = frozenset({"integer", "number", "boolean", "null"})
_ANNOTATIONS = frozenset({"title", "description", "default", "examples"})
_DATE = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z"
_FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "uuid": "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
}
_CHARACTER = r"[^\x00]"
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
    lines.append(f"any_text@2: /{_CHARACTER}*/")
    lines.append("any_scalar: " + _json_rule({"type": sorted(_JSON_SCALARS)}, "any value"))
    lines.append('any_pair: /[A-Za-z_][A-Za-z0-9_]*/ ":" any_value')
    lines.append(_ANY)
    for index, tool in enumerate(tools):
        arguments_rule(tool)  # refuses what cannot be enforced at all
        rules = _Rules(f"call_{index}", tool, markers)
        body = rules.value(arguments_schema(tool))
        head = lark_text(f"{opening}call:{tool.name}", markers)
        lines.extend([f"call_{index}: {head} {body}", *rules.lines])
    return GrammarSpec("\n".join([*lines, ""]), what_of(tools), markers, (QUOTE, "}", "]"))


def _json_rule(schema: Mapping[str, Any], what: str) -> str:
    return json_grammar(schema, what=what).lark.removeprefix("start: ").strip()


class _Rules:
    """The rules of one tool's arguments; each method gives a lark expression."""

    def __init__(self, prefix: str, tool: Tool, markers: Sequence[str]) -> None:
        self.lines: list[str] = []
        self._prefix = prefix
        self._what = f"tool {tool.name!r}"
        self._root = arguments_schema(tool)
        self._markers = markers
        self._references: dict[str, str] = {}

    def value(self, schema: Any) -> str:
        if not isinstance(schema, Mapping):
            if schema is False:
                raise self._refusal("false")
            return "any_value"
        refused = next((key for key in _REFUSED if schema.get(key)), None)
        if refused:
            raise self._refusal(refused)
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        if "const" in schema or "enum" in schema:
            return self._literals(schema.get("enum", [schema.get("const")]))
        choices = schema.get("anyOf") or schema.get("oneOf")
        if choices and "properties" in schema:
            raise self._refusal("anyOf beside properties")
        if choices:
            return _choice([self.value(part) for part in choices])
        names = _types(schema)
        return _choice([self._of_type(name, schema) for name in names]) if names else "any_value"

    def _of_type(self, name: str, schema: Mapping[str, Any]) -> str:
        if name == "string":
            return self._string(schema)
        if name == "array":
            return self._array(schema)
        if name == "object":
            return self._object(schema)
        return self._named(_json_rule({**schema, "type": name}, self._what))

    def _string(self, schema: Mapping[str, Any]) -> str:
        """Text up to the closing quotes, which the pattern of a line ``name@2`` ends at."""
        pattern = self._text_pattern(schema)
        if pattern is None:
            return "any_string"
        name = f"{self._prefix}_{len(self.lines)}"
        self.lines.append(f"{name}@2: /{pattern}/")
        return f"{lark_text(QUOTE, self._markers)} {name}"

    def _text_pattern(self, schema: Mapping[str, Any]) -> str | None:
        """A regular expression of the whole text; None for any."""
        said = [key for key in ("pattern", "format") if key in schema]
        sized = "minLength" in schema or "maxLength" in schema
        if len(said) + sized > 1:
            raise self._refusal(f"{said[0]} beside another limit of the text")
        if sized:
            return f"{_CHARACTER}{{{schema.get('minLength', 0)},{schema.get('maxLength', '')}}}"
        if "pattern" in schema:
            return _anchored(schema["pattern"])
        if "format" in schema and schema["format"] not in _FORMATS:
            raise self._refusal(f"format {schema['format']}")
        return _FORMATS[schema["format"]] if "format" in schema else None

    def _array(self, schema: Mapping[str, Any]) -> str:
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if most == 0:
            return '"[" "]"'
        item = self._named(self.value(schema.get("items", True)))
        if least == 0 and most is None:
            return f'"[" ({item} ("," {item})*)? "]"'
        upper = "" if most is None else most - 1
        several = f'{item} ("," {item}){{{max(least - 1, 0)},{upper}}}'
        return f'"[" {several} "]"' if least else f'"[" ({several})? "]"'

    def _object(self, schema: Mapping[str, Any]) -> str:
        properties: Mapping[str, Any] = schema.get("properties", {})
        required = {*schema.get("required", ())}
        others = schema.get("additionalProperties", True)
        unknown = required.difference(properties)
        if not properties and not required:
            return '"{" "}"' if others is False else self._map(others)
        rest = self._named('""')
        pairs = [*properties.items(), *((key, others) for key in sorted(unknown))]
        fresh: str | None = None
        for key, inner in reversed(pairs):
            pair = self._named(f"{self._text(key + ':')} {self.value(inner)}")
            own = f"{pair} {rest}"
            fresh = self._named(own if key in required else _choice([own, fresh or '""']))
            comma = f'"," {pair}'
            rest = self._named(f"{comma if key in required else f'({comma})?'} {rest}")
        return f'"{{" {fresh} "}}"'

    def _map(self, schema: Any) -> str:
        pair = self._named(f'/[A-Za-z_][A-Za-z0-9_]*/ ":" {self.value(schema)}')
        return f'"{{" ({pair} ("," {pair})*)? "}}"'

    def _literals(self, values: Sequence[Any]) -> str:
        return _choice([self._text(written(value)) for value in values])

    def _reference(self, reference: str) -> str:
        """A rule of its own, so that a schema may refer to itself."""
        if reference not in self._references:
            name = f"{self._prefix}_ref_{len(self._references)}"
            self._references[reference] = name
            self.lines.append(f"{name}: {self.value(self._target(reference))}")
        return self._references[reference]

    def _target(self, reference: str) -> Any:
        target: Any = self._root
        for part in reference.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            target = target[int(key)] if isinstance(target, list | tuple) else target[key]
        return target

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


def _anchored(pattern: str) -> str:
    """A schema's pattern may match anywhere in a text unless it says where."""
    start = "" if pattern.startswith("^") else f"{_CHARACTER}*"
    end = "" if pattern.endswith("$") and not pattern.endswith("\\$") else f"{_CHARACTER}*"
    body = pattern.removeprefix("^")
    body = body if end else body.removesuffix("$")
    return f"{start}({body}){end}".replace("/", "\\/")


def _choice(parts: Sequence[str]) -> str:
    return f"({' | '.join(parts)})"


def _types(schema: Mapping[str, Any]) -> Sequence[str]:
    """The types that a schema admits; none where it says nothing about a value."""
    named = schema.get("type")
    if isinstance(named, str):
        return [named]
    if named:
        return list(named)
    if "properties" in schema:
        return ["object"]
    return TYPES if set(schema) - _ANNOTATIONS else ()

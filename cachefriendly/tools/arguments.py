"""The arguments of a tool one by one, for dialects that do not write them as one JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cachefriendly.errors import SchemaError
from cachefriendly.messages import Tool
from cachefriendly.tools.grammar import arguments_rule, arguments_schema
from cachefriendly.tools.keywords import COMBINING, ENUMERATING, limits
from cachefriendly.tools.schema import referenced

__all__ = ["Arguments", "arguments_of"]

_FOLLOWED = ("properties", "required", "additionalProperties")
_DEEPEST = 20


@dataclass(frozen=True, slots=True)
class Arguments:
    """The schemas of the arguments that may be written, all inside ``root``.

    ``root`` is rewritten for grammars. An argument that may never be given is not among them.
    """

    schemas: Mapping[str, Any]
    required: tuple[str, ...]
    root: Mapping[str, Any]

    @property
    def required_first(self) -> list[str]:
        """The keys: those of required arguments, then the others, each in their order."""
        return [*self.required, *(key for key in self.schemas if key not in self.required)]


def arguments_of(tool: Tool) -> Arguments:
    """The arguments of ``tool``, if its schema is no more than a list of them.

    Raises:
        SchemaError: names the tool when its schema cannot be enforced at all, or says more about
            the object of all arguments than which of them are required.
    """
    arguments_rule(tool)
    root = arguments_schema(tool)
    body = _listing(root)
    odd = [key for key in (*COMBINING, *ENUMERATING) if key in body]
    odd += [key for key in limits(body, "object") if key not in _FOLLOWED and body[key]]
    if odd:
        raise SchemaError(
            f"tool {tool.name!r}: {odd[0]} at the root of the parameters cannot be enforced where "
            "arguments are written one by one; list the arguments under properties, or leave the "
            "choice of the tool to the model"
        )
    listed: Mapping[str, Any] = body.get("properties", {})
    required = tuple(body.get("required", ()))
    others = body.get("additionalProperties", True)
    schemas = {**listed, **{key: others for key in required if key not in listed}}
    possible = {key: schema for key, schema in schemas.items() if schema is not False}
    return Arguments(possible, required, root)


def _listing(root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object that lists the arguments: the root, or what it is nothing but a reference to."""
    body: Any = root
    for _ in range(_DEEPEST):
        listed = [key for key in limits(body, "object") if body[key] not in ({}, [])]
        if "$ref" not in body or listed:
            break
        others = [key for key in (*COMBINING, *ENUMERATING) if key in body and key != "$ref"]
        target = referenced(body["$ref"], root)
        if others or not isinstance(target, Mapping):
            break
        body = target
    return body if isinstance(body, Mapping) else root

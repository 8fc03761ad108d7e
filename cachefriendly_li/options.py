"""What a call of an LLM may say, split into call options and generation parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from cachefriendly.options import check_kinds

__all__ = ["split_call"]

_Layer: TypeAlias = Mapping[str, Any]

# What a call may say besides generation parameters.
_CALL_OPTIONS: Final = frozenset(
    {
        "cache_namespace",
        "response_schema",
        "session_id",
        "template_arguments",
        "tool_choice",
        "tool_required",
        "tools",
    }
)
_KINDS: Final[Mapping[str, type]] = {
    "cache_namespace": str,
    "generate_kwargs": Mapping,
    "response_schema": Mapping,
    "session_id": str,
    "template_arguments": Mapping,
    "tools": Iterable,
}
# How LlamaIndex's own code is to treat the reply, not what is generated.
_IGNORED: Final = frozenset({"allow_parallel_tool_calls", "formatted", "verbose"})


def split_call(options: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[_Layer, _Layer]]:
    """Split keyword arguments of a call into call options and layers of generation parameters.

    Generation parameters go into ``generate_kwargs={...}`` or under their own names, which win.

    Raises:
        RequestError: an option is of another kind than it must be.
    """
    check_kinds(options, _KINDS)
    call = {name: value for name, value in options.items() if name in _CALL_OPTIONS}
    skip = _CALL_OPTIONS | _IGNORED | {"generate_kwargs"}
    named = {name: value for name, value in options.items() if name not in skip}
    return call, (options.get("generate_kwargs") or {}, named)

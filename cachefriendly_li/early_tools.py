"""Which tools may start before the model's turn is over: those that a user named and that are fit.

A tool is fit when the model alone fills its arguments. A `Context` is what the agent's own step
puts in, and what a tool writes to it must not happen for a call that is never made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llama_index.core.tools import AsyncBaseTool, BaseTool

from cachefriendly.errors import ConfigError

__all__ = ["check_early_tools", "fit_tools", "tool_names"]


def tool_names(allowed: Any) -> list[str]:
    """Names of tools, tool objects or functions, as names.

    Raises:
        ConfigError: it is no list, or an entry is none of these.
    """
    if isinstance(allowed, str) or not isinstance(allowed, Iterable):
        raise ConfigError(f"early_tools={allowed!r} is no list; give names: ['search']")
    return [_name(entry) for entry in allowed]


def _name(entry: Any) -> str:
    if isinstance(entry, BaseTool):
        return entry.metadata.get_name()
    name = entry if isinstance(entry, str) else getattr(entry, "__name__", None)
    if not isinstance(name, str):
        kind = type(entry).__name__
        raise ConfigError(f"early_tools: {kind} is no tool; give names or tools")
    return name


def check_early_tools(allowed: Sequence[str], tools: Iterable[Any], *, closed: bool) -> None:
    """Refuse what can be seen to be wrong already.

    Args:
        closed: no further tools will come (there is no tool retriever).

    Raises:
        ConfigError: a named tool takes a `Context`, or there is none of that name.
    """
    known = {_name(tool): tool for tool in tools}
    for name in allowed:
        if name in known and _wants_context(known[name]):
            raise ConfigError(
                f"early_tools: tool {name!r} cannot start early: it takes a Context, which "
                "belongs to the step that runs after the model's turn"
            )
        if closed and name not in known:
            offered = ", ".join(map(repr, known)) or "none"
            raise ConfigError(f"early_tools: there is no tool {name!r}; the tools are: {offered}")


def fit_tools(
    allowed: Sequence[str], offered: Sequence[AsyncBaseTool]
) -> Mapping[str, AsyncBaseTool]:
    """The offered tools that may start early, by name."""
    tools = ((tool.metadata.get_name(), tool) for tool in offered)
    return {name: tool for name, tool in tools if name in allowed and not _wants_context(tool)}


def _wants_context(tool: Any) -> bool:
    return bool(getattr(tool, "requires_context", False))

"""Which tools may start before the model's turn is over: those that a user named and that are fit.

A tool is fit when the model alone fills its arguments. State, store, runtime and call id are put
in by LangGraph's tool node, from what is only settled once the turn is over.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_type_hints

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool

from cachefriendly.errors import ConfigError

__all__ = ["EarlyTools", "injected_arguments"]

log = logging.getLogger(__name__)

_OWN_ARGUMENTS = frozenset({"self", "config", "callbacks", "run_manager"})
"""Arguments that a tool fills by itself, wherever it runs."""


class EarlyTools:
    """The tools that a user allows to start early, by name or as tool objects.

    Raises at construction:
        ConfigError: an entry is neither, or a tool object takes injected arguments.
    """

    def __init__(self, allowed: Iterable[str | BaseTool] = ()) -> None:
        if isinstance(allowed, str):
            raise ConfigError(f"early_tools={allowed!r} is a string; give a list: [{allowed!r}]")
        self._allowed: dict[str, BaseTool | None] = {}
        for entry in allowed:
            if isinstance(entry, str):
                self._allowed[entry] = None
                continue
            if not isinstance(entry, BaseTool):
                kind = type(entry).__name__
                raise ConfigError(f"early_tools: {kind} is no tool; give names or tools")
            if injected := injected_arguments(entry):
                raise ConfigError(_unfit(entry.name, injected))
            self._allowed[entry.name] = entry
        self._told: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._allowed)

    def among(self, offered: Sequence[Any]) -> Mapping[str, BaseTool]:
        """The offered tools that may start early. Others are named in the log, once."""
        tools = {tool.name: tool for tool in offered if isinstance(tool, BaseTool)}
        for name in self._allowed.keys() - tools.keys():
            self._tell(name, f"early_tools: this agent offers no tool named {name!r}")
        return {name: tools[name] for name in tools if self._may_start(tools[name])}

    def _may_start(self, tool: BaseTool) -> bool:
        if tool.name not in self._allowed:
            return False
        given = self._allowed[tool.name]
        if given is not None and given is not tool:
            self._tell(tool.name, f"early_tools: the agent has another tool named {tool.name!r}")
            return False
        if injected := injected_arguments(tool):
            self._tell(tool.name, _unfit(tool.name, injected))
            return False
        return True

    def _tell(self, name: str, text: str) -> None:
        if name not in self._told:
            self._told.add(name)
            log.warning("%s; it starts after the turn, as without early_tools", text)


def _unfit(name: str, injected: Sequence[str]) -> str:
    arguments = ", ".join(injected)
    return (
        f"early_tools: tool {name!r} cannot start early, its injected arguments ({arguments}) are "
        "known only when the model's turn is over"
    )


def injected_arguments(tool: BaseTool) -> tuple[str, ...]:
    """Arguments of a tool that the model does not fill: state, store, runtime, call id."""
    filled = _fields(tool.tool_call_schema)
    wanted = _fields(tool.get_input_schema()) | _parameters(tool)
    return tuple(sorted(wanted - filled - _OWN_ARGUMENTS))


def _fields(schema: Any) -> set[str]:
    """Argument names of a schema: a pydantic model of either version, or JSON Schema."""
    if isinstance(schema, dict):
        return set(schema.get("properties") or ())
    fields: Mapping[str, Any] = getattr(schema, "model_fields", None) or schema.__fields__
    return set(fields)


def _parameters(tool: BaseTool) -> set[str]:
    """Named parameters of the function behind a tool, whatever its schema says of them."""
    function = getattr(tool, "func", None) or getattr(tool, "coroutine", None) or tool._run
    named = {
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    return named - _config_parameters(function)


def _config_parameters(function: Any) -> set[str]:
    """Parameters that take the call's config, under whatever name; the tool passes it itself."""
    try:
        hints = get_type_hints(function)
    except Exception:  # annotations that cannot be resolved name no config
        return set()
    return {name for name, hint in hints.items() if _is_config(hint)}


def _is_config(hint: Any) -> bool:
    return hint is RunnableConfig or RunnableConfig in getattr(hint, "__args__", ())

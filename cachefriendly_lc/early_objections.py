"""What in an agent may refuse or change a tool call after the model made it.

A middleware is not told of the others, and an agent not of its compile options. What can be seen
is the graph that runs: its nodes, where it is interrupted, and how its tool node wraps calls. If
LangGraph hides it, that is an objection of its own: tools then start after the turn, as ever.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.runnables import RunnableConfig

from cachefriendly_lc.compat import ToolNode, graph_that_runs, tool_call_wrappers

__all__ = ["objections"]

_HARMLESS = frozenset(
    {
        "langchain.agents.middleware.tool_error.ToolErrorMiddleware",
        "langchain.agents.middleware.tool_retry.ToolRetryMiddleware",
    }
)
"""They run every call as it is; what they add happens when its result is asked for."""


def objections(config: RunnableConfig, own: AgentMiddleware[Any, Any, Any]) -> tuple[str, ...]:
    """Why no tool of this run may start early; empty when nothing can be seen against it.

    Args:
        config: of the node that calls the model.
        own: the middleware that asks, which objects to nothing.
    """
    run = graph_that_runs(config)
    if run is None:
        return ("the graph that runs cannot be seen",)
    return (*_after_model(run), *_interrupts(run), *_wrappers(run, own))


def _after_model(run: Any) -> Iterator[str]:
    for name in run.nodes:
        if name.endswith(".after_model"):
            yield f"{name} may change or refuse a call"


def _interrupts(run: Any) -> Iterator[str]:
    if _names(run.interrupt_before, "tools") or _names(run.interrupt_after, "model"):
        yield "the agent is interrupted before its tools"


def _names(interrupts: str | Sequence[str], node: str) -> bool:
    return interrupts == "*" or node in interrupts


def _wrappers(run: Any, own: AgentMiddleware[Any, Any, Any]) -> Iterator[str]:
    node = getattr(run.nodes.get("tools"), "bound", None)
    if not isinstance(node, ToolNode):
        yield "the agent has no tool node"
        return
    for wrapper in tool_call_wrappers(node):
        for middleware in _middlewares(wrapper):
            kind = type(middleware)
            if middleware is not own and f"{kind.__module__}.{kind.__name__}" not in _HARMLESS:
                yield f"{kind.__name__} wraps tool calls"


def _middlewares(wrapper: Callable[..., Any] | None) -> Iterator[Any]:
    """Whose methods a wrapper of tool calls is made of; a wrapper of unknown kind is its own."""
    if wrapper is None:
        return
    function = inspect.unwrap(wrapper)
    middleware = getattr(function, "__self__", None)
    inner = inspect.getclosurevars(function).nonlocals if middleware is None else {}
    parts = [part for part in inner.values() if callable(part)]
    if middleware is not None or not parts:
        yield middleware or function
    for part in parts:
        yield from _middlewares(part)

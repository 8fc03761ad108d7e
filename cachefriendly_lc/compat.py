"""Private corners and version quirks of LangChain's agents and of LangGraph, each explained once.

What these packages do not offer in public is read here and nowhere else, by looking rather than by
version number. The public names that this package builds on come from here as well, so that a
missing extra is named once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.runnables import RunnableConfig

from cachefriendly.errors import MissingExtra

try:
    from langchain.agents.middleware import SummarizationMiddleware, summarization
    from langchain.agents.middleware.types import AgentState, PrivateStateAttr, ResponseT
    from langgraph.channels.delta import DeltaChannel

    # By identity: LangGraph gives every message that this very reducer will see an id first.
    from langgraph.graph.message import _messages_delta_reducer as messages_reducer
    from langgraph.managed.is_last_step import RemainingStepsManager
    from langgraph.prebuilt import ToolNode
    from langgraph.pregel import _checkpoint
except ImportError as error:
    raise MissingExtra("langchain", "agents") from error

__all__ = [
    "DEFAULT_SUMMARY_PROMPT",
    "DIFFS_ARE_WHOLE",
    "AgentState",
    "DeltaChannel",
    "PrivateStateAttr",
    "RemainingStepsManager",
    "ResponseT",
    "SummarizationMiddleware",
    "ToolNode",
    "graph_that_runs",
    "messages_reducer",
    "summary_chat_model",
    "summary_config",
    "summary_writer",
    "tool_call_wrappers",
]

DIFFS_ARE_WHOLE = hasattr(_checkpoint, "_delta_channels_to_replay")
"""Whether this LangGraph builds a thread's diffs right. 1.2.0 replays channels never written, so
that a new thread and a cut one look alike, and shows other messages after forks and edits."""

DEFAULT_SUMMARY_PROMPT: str = summarization.DEFAULT_SUMMARY_PROMPT

_CALL = "__pregel_call"
"""Where LangGraph keeps, in a node's config, the function that schedules more tasks of its run."""


def graph_that_runs(config: RunnableConfig) -> Any:
    """The run that a node's config belongs to: its nodes and interrupts. None: it cannot be seen.

    A node is told neither of the other nodes nor of its graph's compile options.
    """
    call = config.get("configurable", {}).get(_CALL)
    schedule = getattr(call, "keywords", {}).get("schedule_task")
    run = getattr(schedule, "__self__", None)
    return run if hasattr(run, "nodes") and hasattr(run, "interrupt_before") else None


def tool_call_wrappers(node: ToolNode) -> tuple[Callable[..., Any] | None, ...]:
    """What a tool node calls its tools through, sync and async: middlewares, composed."""
    return node._wrap_tool_call, node._awrap_tool_call


def summary_chat_model(middleware: SummarizationMiddleware[Any, Any]) -> Any:
    """The chat model that writes summaries; None where the user's own ``summarizer`` does."""
    if getattr(middleware, "summarizer", None) is not None:
        return None
    return getattr(middleware, "_summary_chat_model", middleware.model)


def summary_writer(middleware: SummarizationMiddleware[Any, Any]) -> Any:
    """That model with LangChain's retries, where this version has them."""
    return getattr(middleware, "_summary_model", middleware.model)


def summary_config() -> Any:
    """What marks a summary call in traces and streams."""
    made = getattr(summarization, "_summary_config", None)
    return made() if made else {"metadata": {"lc_source": "summarization"}, "tags": ["nostream"]}

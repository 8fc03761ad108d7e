"""What a cancelled run leaves in its `Context`: steps that the next run would take up again.

LlamaIndex keeps them so that a stored context can be resumed. A run that is given a new message
goes on from there instead: with the old steps beside it, two turns would run at once, and results
of tools of the one would count among those of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from llama_index.core.workflow import Context

__all__ = ["drop_unfinished_steps"]

_UNFINISHED: Final = ("queue", "in_progress", "collected_events", "collected_waiters")
_PENDING: Final = ("deliveries", "streams", "collection_release_states")


def drop_unfinished_steps(workflow: Any, values: Iterable[Any]) -> None:
    """Clean the context among the arguments of a run, unless that run resumes it.

    The state of a context (memory and all) stays. Where it hides its steps, nothing is done.
    """
    context = next((value for value in values if isinstance(value, Context)), None)
    if context is None or not hasattr(context, "_face") or context.is_running:
        return
    if not _has_unfinished(context.to_dict(include_state=False)):
        return
    stored = context.to_dict()
    cleaned = {**stored, "workers": {}, "is_running": False}
    cleaned |= {name: type(stored[name])() for name in _PENDING if name in stored}
    restored = Context.from_dict(workflow, cleaned)
    context._face = restored._face


def _has_unfinished(stored: Mapping[str, Any]) -> bool:
    workers: Mapping[str, Mapping[str, Any]] = stored.get("workers") or {}
    return any(worker.get(name) for worker in workers.values() for name in _UNFINISHED)

"""Copy a LangGraph thread, whole or as little of it as its newest state is built from.

The savers in this release copy and prune nothing themselves, and copying the newest checkpoint
by hand leaves out what diffs are built from. To prune a thread, copy it with ``newest_only=True``
and delete the old one: at no moment is there less than one whole thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig

from cachefriendly.errors import MissingExtra, StateError

try:
    from langgraph.channels.delta import DeltaChannel
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
    from langgraph.pregel import Pregel
except ImportError as error:
    raise MissingExtra("langgraph", "agents") from error

__all__ = ["copy_thread"]


def copy_thread(
    graph: Pregel[Any, Any, Any, Any], source: str, target: str, *, newest_only: bool = False
) -> int:
    """Copy the thread ``source`` to the new thread ``target``; how many checkpoints it took.

    Args:
        graph: what runs on the thread, for example an agent; with its checkpointer.
        newest_only: the newest state can be gone on from, earlier ones can no longer be read.

    Raises:
        StateError: there is no such thread, the target exists, or the copy does not read as the
            original does. The original is never changed.
    """
    saver = graph.checkpointer
    if not isinstance(saver, BaseCheckpointSaver):
        raise StateError("the graph has no checkpointer; compile it with one to copy its threads")
    if next(iter(saver.list(_config(target), limit=1)), None) is not None:
        raise StateError(f"thread {target!r} exists; copy to a new thread")
    kept = list(saver.list(_config(source)))
    if not kept:
        raise StateError(f"there is no thread {source!r}")
    if newest_only:
        diffs = [name for name, channel in graph.channels.items() if _is_diff(channel)]
        kept = _needed(kept, diffs)
    _put(saver, kept, target)
    if graph.get_state(_config(target)).values != graph.get_state(_config(source)).values:
        raise StateError(f"the copy of thread {source!r} reads differently; delete {target!r}")
    return len(kept)


def _needed(checkpoints: Sequence[CheckpointTuple], diffs: Sequence[str]) -> list[CheckpointTuple]:
    """Of the graph's own checkpoints the newest, and its ancestors back to full copies of all
    diffs; of subgraphs' checkpoints, whose channels are not known here, all."""
    own = [item for item in checkpoints if not _place(item.config)[0]]
    others = [item for item in checkpoints if _place(item.config)[0]]
    by_id = {_place(item.config)[1]: item for item in own}
    item: CheckpointTuple | None = own[0] if own else None
    open_diffs = {name for name in diffs if item and name in item.checkpoint["channel_versions"]}
    needed: list[CheckpointTuple] = []
    while item is not None:
        needed.append(item)
        open_diffs -= item.checkpoint["channel_values"].keys()
        if not open_diffs:
            break
        item = by_id.get(_place(item.parent_config)[1])
    return [*needed, *others]


def _put(
    saver: BaseCheckpointSaver[Any], checkpoints: Sequence[CheckpointTuple], target: str
) -> None:
    by_place = {_place(item.config): item for item in checkpoints}
    for item in reversed(checkpoints):
        parent = by_place.get(_place(item.parent_config))
        before = parent.checkpoint["channel_versions"] if parent else {}
        versions = item.checkpoint["channel_versions"]
        put = saver.put(
            _config(
                target, *_place(parent.config if parent else item.config)[: 2 if parent else 1]
            ),
            item.checkpoint,
            item.metadata,
            {name: v for name, v in versions.items() if before.get(name) != v},
        )
        for rank, (task, writes) in enumerate(_by_task(item.pending_writes or ()).items()):
            # Writes are replayed in the order of their paths: it is the order they came in.
            saver.put_writes(put, writes, task, f"{rank:08}")


def _by_task(writes: Iterable[tuple[str, str, Any]]) -> dict[str, list[tuple[str, Any]]]:
    grouped: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in writes:
        grouped.setdefault(task, []).append((channel, value))
    return grouped


def _config(thread: str, namespace: str | None = None, checkpoint: str = "") -> RunnableConfig:
    place: dict[str, Any] = {"thread_id": thread}
    if namespace is not None:
        place["checkpoint_ns"] = namespace
    if checkpoint:
        place["checkpoint_id"] = checkpoint
    return {"configurable": place}


def _place(config: RunnableConfig | None) -> tuple[str, str]:
    """Namespace and id of a checkpoint; two empty texts where there is none."""
    found = config["configurable"] if config else {}
    return found.get("checkpoint_ns", ""), found.get("checkpoint_id", "")


def _is_diff(channel: Any) -> bool:
    return isinstance(channel, DeltaChannel)

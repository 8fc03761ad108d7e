"""Counts the token ids that enter a model: the figure an engine's own report is checked against."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

__all__ = ["EmbeddingCount", "embedding_counter"]


class EmbeddingCount:
    """What entered the input embedding, one entry per forward, whoever called it."""

    def __init__(self) -> None:
        self.ids: list[tuple[int, ...]] = []

    @property
    def tokens(self) -> int:
        return sum(len(ids) for ids in self.ids)

    @property
    def forwards(self) -> int:
        return len(self.ids)

    def reset(self) -> None:
        self.ids.clear()

    def _record(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = args[0] if args else kwargs["input"]
        self.ids.append(tuple(ids.flatten().tolist()))


@contextmanager
def embedding_counter(model: Any) -> Iterator[EmbeddingCount]:
    """Count while the block runs.

    A hook on the embedding itself: no code path of an engine can forget to report to it, and ids
    are seen in the order in which the model saw them. Counts forwards of every thread.
    """
    count = EmbeddingCount()
    handle = model.get_input_embeddings().register_forward_pre_hook(count._record, with_kwargs=True)
    try:
        yield count
    finally:
        handle.remove()

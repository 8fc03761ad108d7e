"""Opens what a runner choice means: a runner on the model, and an empty store for it."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from cachefriendly.config import EngineConfig
from cachefriendly.engine.fallback import FallbackRunner
from cachefriendly.engine.runner import PackedRunner
from cachefriendly.engine.runners import Backend, RunnerChoice
from cachefriendly.store.manager import KVCacheManager
from cachefriendly.store.snapshots import SnapshotStore

__all__ = ["open_backend"]


def open_backend(
    model: PreTrainedModel, config: EngineConfig, choice: RunnerChoice
) -> Backend[Any]:
    """A runner on the model and its store; what a sequence is stays between the two."""
    if choice.kind == "fallback":
        snapshots = SnapshotStore(config.kv_bytes, reuse=config.reuse)
        return Backend(choice, FallbackRunner(model, step=choice.step), snapshots)
    extents = KVCacheManager(config.kv_bytes, reuse=config.reuse)
    return Backend(choice, PackedRunner(model), extents)

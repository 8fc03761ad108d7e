"""What a runner choice means: a runner on the model, and an empty store for it."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel

from cachefriendly.config import EngineConfig
from cachefriendly.engine.fallback import FallbackRunner
from cachefriendly.engine.runner import PackedRunner
from cachefriendly.engine.runners import Backend, RunnerChoice, unchecked_fallback
from cachefriendly.engine.selfcheck import choose_fallback
from cachefriendly.errors import UnsupportedModel
from cachefriendly.store.manager import KVCacheManager
from cachefriendly.store.snapshots import SnapshotStore

__all__ = ["choice_after", "open_backend"]


def open_backend(
    model: PreTrainedModel, config: EngineConfig, choice: RunnerChoice
) -> Backend[Any]:
    """A runner on the model and its store; what a sequence is stays between the two."""
    if choice.kind == "fallback":
        snapshots = SnapshotStore(config.kv_bytes, reuse=config.reuse)
        return Backend(choice, FallbackRunner(model, step=choice.step), snapshots)
    extents = KVCacheManager(config.kv_bytes, reuse=config.reuse)
    return Backend(choice, PackedRunner(model), extents)


def choice_after(
    refusal: UnsupportedModel, choice: RunnerChoice, model: PreTrainedModel, config: EngineConfig
) -> RunnerChoice:
    """What a running engine goes on with when its runner refuses a step.

    Raises:
        UnsupportedModel: there is no other way than the one that failed.
    """
    if choice.kind != "packed" or config.runner != "auto" or model.training:
        raise refusal
    if config.check_model:
        return choose_fallback(model, str(refusal))
    return unchecked_fallback(str(refusal))

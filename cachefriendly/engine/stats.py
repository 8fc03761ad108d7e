"""Counters of an engine, as one frozen value."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cachefriendly.engine.core import CoreStats
from cachefriendly.engine.report import Totals
from cachefriendly.engine.runners import RunnerKind
from cachefriendly.store.contract import CacheStats

__all__ = ["EngineStats"]


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since the engine started. ``hit_ratio`` is reused over all prompt tokens."""

    calls: int
    prompt_tokens: int
    reused_tokens: int
    generated_tokens: int
    background_prefilled_tokens: int
    hit_ratio: float
    core: CoreStats
    cache: CacheStats

    @classmethod
    def of(cls, totals: Totals, core: CoreStats, cache: CacheStats) -> EngineStats:
        prompt = totals.prompt_tokens
        return cls(
            calls=totals.calls,
            prompt_tokens=prompt,
            reused_tokens=totals.reused_tokens,
            generated_tokens=totals.generated_tokens,
            background_prefilled_tokens=totals.background_prefilled_tokens,
            hit_ratio=totals.reused_tokens / prompt if prompt else 0.0,
            core=core,
            cache=cache,
        )

    @property
    def runner(self) -> RunnerKind:
        """Which runner the model runs on; ``core.runner_reason`` says why, if not the packed."""
        return self.core.runner

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

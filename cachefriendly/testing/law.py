"""The law as a check: along the engine's own ids, every logit equals a cold run's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cachefriendly.engine.row import Row
from cachefriendly.testing.oracle import cold_logits

__all__ = ["LawReport", "LogitRecord", "Step", "recorded_logits"]


@dataclass(frozen=True, slots=True)
class LawReport:
    """Outcome of a comparison. ``near_ties``: steps whose two best cold logits are within 2 tol."""

    steps: int
    largest_difference: float
    worst_choice: float
    near_ties: int


@dataclass(frozen=True, slots=True)
class Step:
    """One choice: the row's ids so far, the logits [vocab], the id chosen (None: the row ended)."""

    ids: tuple[int, ...]
    logits: Tensor
    chosen: int | None


@dataclass(slots=True)
class LogitRecord:
    """What every row saw and chose, step by step."""

    steps: list[Step] = field(default_factory=list)

    def check(self, model: Any, ids: Sequence[int], *, tol: float, steps: int = 1) -> LawReport:
        """Compare every recorded step along ``ids`` with one cold forward of ``model``.

        Args:
            steps: at least this many steps must have been recorded along ``ids``.

        Raises:
            AssertionError: a logit differs by more than ``tol``, or a chosen id's cold logit is
                more than 2 ``tol`` below the best (greedy rows).
        """
        ids = tuple(ids)
        cold = cold_logits(model, ids).float()
        report = _compare([s for s in self.steps if s.ids == ids[: len(s.ids)]], cold, tol)
        if report.steps < steps:
            raise AssertionError(f"{report.steps} steps along these ids, expected {steps}")
        if not report.largest_difference <= tol:
            raise AssertionError(f"logits differ by {report.largest_difference:.3g} > {tol:.3g}")
        if not report.worst_choice <= 2 * tol:
            raise AssertionError(f"a choice lies {report.worst_choice:.3g} below the cold best")
        return report


def _compare(steps: list[Step], cold: Tensor, tol: float) -> LawReport:
    difference, choice, ties = 0.0, 0.0, 0
    for step in steps:
        want = cold[len(step.ids) - 1]
        difference = max(difference, float((step.logits - want).abs().max()))
        best = torch.topk(want, 2).values
        ties += int(best[0] - best[1] <= 2 * tol)
        if step.chosen is not None:
            choice = max(choice, float(best[0] - want[step.chosen]))
    return LawReport(len(steps), difference, choice, ties)


@contextmanager
def recorded_logits() -> Iterator[LogitRecord]:
    """Record the logits of every row of every engine while the block runs."""
    record = LogitRecord()
    original = Row.take

    def take(self: Row, logits: Tensor) -> Any:
        seen, copy = tuple(self.ids), logits.detach().clone().cpu()
        done = original(self, logits)
        chosen = self.ids[len(seen)] if len(self.ids) > len(seen) else None
        record.steps.append(Step(seen, copy, chosen))
        return done

    Row.take = take  # type: ignore[method-assign]
    try:
        yield record
    finally:
        Row.take = original  # type: ignore[method-assign]

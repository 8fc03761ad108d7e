"""A forward that may fail: tried again with less at once, in the end row by row."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from cachefriendly.compat_transformers import out_of_memory
from cachefriendly.engine.row import Row
from cachefriendly.engine.runners import RowInput, Runner
from cachefriendly.engine.scheduler import Batch, Work
from cachefriendly.errors import RowFailed, UnsupportedModel

__all__ = ["Attempt"]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Attempt:
    """What came of a batch.

    Attributes:
        done: what was forwarded together, and the logits [rows that reached their end, vocab].
        failed: rows whose forward failed alone.
        refused: the runner does not run this model exactly; rows that are not in ``done`` have
            not changed.
    """

    done: list[tuple[Batch, Tensor]] = field(default_factory=list)
    failed: list[tuple[Row, RowFailed]] = field(default_factory=list)
    refused: UnsupportedModel | None = None

    @classmethod
    def at(cls, batch: Batch, runner: Runner[Any], make_room: Callable[[], None]) -> Attempt:
        """Forward a batch; when that fails, row by row.

        Out of memory in a packed forward has no single culprit: kept tokens go first (by
        ``make_room``), then the step is halved; only a row that fails alone fails.
        """
        attempt = cls()
        try:
            attempt.done.append((batch, _forward(batch, runner)))
        except UnsupportedModel as error:
            attempt.refused = error
        except BaseException as error:  # a hook of the owner's may raise anything
            if out_of_memory(error):
                make_room()
            kind = type(error).__name__
            log.warning("a forward of %d rows failed (%s); retrying", len(batch), kind)
            attempt._row_by_row(batch, runner)
        return attempt

    def _row_by_row(self, batch: Batch, runner: Runner[Any]) -> None:
        for work in batch:
            try:
                self.done.append(_alone(work, runner))
            except UnsupportedModel as error:
                self.refused = error
                return
            except BaseException as error:
                kind = type(error).__name__
                failure = RowFailed(f"the forward of this call failed: {kind}: {error}")
                failure.__cause__ = error
                self.failed.append((work.row, failure))


def _alone(work: Work, runner: Runner[Any]) -> tuple[Batch, Tensor]:
    """One row's work, halved until it fits into memory."""
    while True:
        try:
            return [work], _forward([work], runner)
        except BaseException as error:
            if not out_of_memory(error) or len(work.ids) == 1:
                raise
            work = Work(work.row, work.ids[: len(work.ids) // 2], last=False)


def _forward(batch: Batch, runner: Runner[Any]) -> Tensor:
    rows = [RowInput(work.row.sequence, work.ids, work.last, len(work.row.ids)) for work in batch]
    return runner.forward(rows)

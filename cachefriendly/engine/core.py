"""The engine's loop body: admit, forward, choose, finish. Runs on one thread and owns all state."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from cachefriendly.compat_transformers import out_of_memory
from cachefriendly.config import EngineConfig
from cachefriendly.engine.attempt import Attempt
from cachefriendly.engine.backends import choice_after, open_backend
from cachefriendly.engine.coupling import rows_influence_each_other
from cachefriendly.engine.row import Row
from cachefriendly.engine.runners import Backend, RunnerChoice, RunnerKind
from cachefriendly.engine.scheduler import Batch, Scheduler
from cachefriendly.engine.spaces import Spaces
from cachefriendly.errors import CacheFriendlyError, Cancelled, RowFailed, UnsupportedModel
from cachefriendly.store.contract import Store

__all__ = ["Core", "CoreStats"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CoreStats:
    """Forwards since start, the tokens in them, and the rows in progress.

    ``runner_reason``: why not the packed runner; empty on it.
    """

    forwards: int
    forwarded_tokens: int
    running: int
    waiting: int
    runner: RunnerKind = "packed"
    runner_reason: str = ""


class Core:
    """One model, its rows and its kept tokens. Every method runs on the engine thread."""

    def __init__(
        self,
        model: PreTrainedModel,
        config: EngineConfig,
        choice: RunnerChoice | None = None,
    ) -> None:
        self._model = model
        self._coupled = rows_influence_each_other(model)
        if self._coupled:
            log.warning("one row per forward, whole and without reuse: %s", self._coupled)
            config = replace(config, reuse=False)
        self._config = config
        self.scheduler = Scheduler(
            max_batch_tokens=config.max_batch_tokens,
            max_rows=config.max_rows,
            share=config.reuse,
        )
        backend = open_backend(model, config, choice or RunnerChoice("packed"))
        self._use(backend)
        self._spaces = Spaces(model, backend)

    def _use(self, backend: Backend[Any]) -> None:
        self.choice, self.runner = backend.choice, backend.runner
        if self._coupled:
            self.runner.together = False
            self.scheduler.budget = sys.maxsize
        if self.choice.step is not None:
            # Only a row's first forward is a fast one: a long prompt goes into it whole.
            self.scheduler.budget = sys.maxsize

    @property
    def cache(self) -> Store[Any]:
        """The kept tokens."""
        return self._spaces.store

    def add(self, row: Row) -> None:
        self._spaces.enter(row)
        row.coupled = self._coupled is not None
        self.scheduler.add(row)

    @property
    def idle(self) -> bool:
        return self.scheduler.idle

    def step(self) -> None:
        """One forward over whatever is waiting and running, and everything that follows from it."""
        self._drop_cancelled()
        self._spaces.look()
        self._admit()
        self._follow_lengths()
        runner = self.runner
        for part in self._parts(self.scheduler.batch()):
            self._forward(part)
            if self.runner is not runner:
                break  # every row begins anew on the other one
        self.cache.make_room()

    def fail_all(self, error: BaseException) -> None:
        for row in self.scheduler.everyone():
            self._end(row, error)

    def close(self) -> None:
        """Free what is kept and give the model back. Safe to repeat."""
        self.cache.clear()
        self.runner.close()

    def stats(self) -> CoreStats:
        return CoreStats(
            forwards=self.runner.forwards,
            forwarded_tokens=self.runner.tokens,
            running=len(self.scheduler.running),
            waiting=len(self.scheduler.waiting),
            runner=self.choice.kind,
            runner_reason=self.choice.reason,
        )

    def forget(self, namespace: str) -> None:
        self._spaces.forget(namespace)

    def _admit(self) -> None:
        for row in self.scheduler.admissible():
            self._spaces.look_closely()
            self.scheduler.start(row)
            try:
                self._open(row)
            except Exception as error:
                failure = RowFailed(f"the call could not start: {type(error).__name__}: {error}")
                failure.__cause__ = error
                self._end(row, failure)

    def _open(self, row: Row) -> None:
        """Opening may copy: kept tokens go when there is no memory for it."""
        try:
            self._spaces.open(row)
        except Exception as error:
            if not out_of_memory(error):
                raise
            self.cache.clear()
            self._spaces.open(row)

    def _follow_lengths(self) -> None:
        if not self.runner.regimes.one:
            for row in self.scheduler.running:
                self._spaces.follow(row)

    def _parts(self, batch: Batch) -> list[Batch]:
        """What goes into one forward each: the rows of one regime, or one row after another."""
        if not self.runner.together:
            return [[work] for work in batch]
        parts: dict[int, Batch] = {}
        for work in batch:
            parts.setdefault(work.row.regime, []).append(work)
        return list(parts.values())

    def _forward(self, batch: Batch) -> None:
        attempt = Attempt.at(batch, self.runner, self.cache.clear)
        for done, logits in attempt.done:
            self._advance(done, logits)
        for row, failure in attempt.failed:
            self._end(row, failure)
        if attempt.refused:
            self._refused(batch, attempt.refused)

    def _advance(self, batch: Batch, logits: Tensor) -> None:
        for work in batch:
            work.row.forwarded += len(work.ids)
            if work.row.held in work.row.plan.at:
                self._spaces.keep(work.row)
        last = [work for work in batch if work.last]
        for work, row_logits in zip(last, logits, strict=True):
            self._choose(work.row, row_logits)

    def _choose(self, row: Row, logits: Tensor) -> None:
        try:
            done = row.take(logits)
        except CacheFriendlyError as error:
            self._end(row, error)
        except BaseException as error:
            failure = RowFailed(f"choosing a token failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
            self._end(row, failure)
        else:
            if done is not None:
                self._end(row, None)
                row.channel.put(done)

    def _refused(self, batch: Batch, refusal: UnsupportedModel) -> None:
        """The runner cannot do this exactly: all rows go on with the other, or these end."""
        try:
            self._move(refusal)
        except UnsupportedModel as final:
            running = [work.row for work in batch if work.row in self.scheduler.running]
            for row in running:
                self._end(row, final)

    def _move(self, refusal: UnsupportedModel) -> None:
        """Take every row to the fallback runner, where it goes on from its own ids.

        Raises:
            UnsupportedModel: there is no other way than the one that failed.
        """
        choice = choice_after(refusal, self.choice, self._model, self._config)
        log.warning("the engine goes on with the fallback runner: %s", choice.reason)
        before, rows = self.runner, list(self.scheduler.running)
        for row in rows:
            row.close()
        self.close()
        backend = open_backend(self._model, self._config, choice)
        self._use(backend)
        self._spaces.move(backend)
        self.runner.forwards, self.runner.tokens = before.forwards, before.tokens
        for row in rows:
            self._spaces.open(row)

    def _end(self, row: Row, error: BaseException | None) -> None:
        """Take a row out. What it forwarded is certain and kept, whatever ended it."""
        self.scheduler.remove(row)
        try:
            self._spaces.close(row)
        finally:  # whatever goes wrong here, nobody waits for ever
            if error is not None:
                row.channel.put(error)

    def _drop_cancelled(self) -> None:
        for row in self.scheduler.everyone():
            if row.cancelled:
                self._end(row, Cancelled("the call was cancelled"))

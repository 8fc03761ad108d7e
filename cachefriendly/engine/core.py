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
from cachefriendly.engine.backends import open_backend
from cachefriendly.engine.coupling import rows_influence_each_other
from cachefriendly.engine.row import Row
from cachefriendly.engine.runners import (
    Backend,
    RowInput,
    RunnerChoice,
    RunnerKind,
    unchecked_fallback,
)
from cachefriendly.engine.scheduler import Batch, Scheduler, Work
from cachefriendly.engine.selfcheck import choose_fallback
from cachefriendly.engine.weights import WeightsWatch
from cachefriendly.errors import CacheFriendlyError, Cancelled, RowFailed, UnsupportedModel

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
        self._use(open_backend(model, config, choice or RunnerChoice("packed")))
        self._weights = WeightsWatch(model)
        self._generation = 0
        self._outdated: set[str] = set()  # spaces of older weights that rows still held

    def _use(self, backend: Backend[Any]) -> None:
        self.choice, self.runner, self.cache = backend.choice, backend.runner, backend.store
        if self._coupled:
            self.runner.together = False
            self.scheduler.budget = sys.maxsize
        if self.choice.step is not None:
            # Only a row's first forward is a fast one: a long prompt goes into it whole.
            self.scheduler.budget = sys.maxsize

    def add(self, row: Row) -> None:
        row.regime = self.runner.regimes.regime(len(row.ids))
        row.coupled = self._coupled is not None
        self.scheduler.add(row)

    @property
    def idle(self) -> bool:
        return self.scheduler.idle

    def step(self) -> None:
        """One forward over whatever is waiting and running, and everything that follows from it."""
        self._drop_cancelled()
        self._watch(self._weights.changed())
        self._admit()
        self._change_regimes()
        batch = self.scheduler.batch()
        runner = self.runner
        for part in self._parts(batch):
            for done, logits in self._forward(part):
                self._advance(done, logits)
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
        for space in self._spaces(namespace):
            self.cache.forget(space)

    def _admit(self) -> None:
        for row in self.scheduler.admissible():
            self._watch(self._weights.changed_at_all())
            self.scheduler.start(row)
            self._open(row)

    def _open(self, row: Row) -> None:
        regimes = self.runner.regimes
        row.regime = regimes.regime(len(row.ids))
        row.weights = self._generation
        space = self._space(row)
        row.open(self.cache.open(row.ids, space), space, self.cache.plan(row.request))
        if not regimes.keeps(row.regime):
            row.other_regime = len(row.ids)
        elif not regimes.one:
            others = self._spaces(row.request.namespace) - {space}
            held = [self.cache.lookup(row.ids, other) for other in others]
            row.other_regime = max(held, default=0)

    def _change_regimes(self) -> None:
        """Rows that grew to a length with other keys forward everything again."""
        regimes = self.runner.regimes
        if regimes.one:
            return
        for row in self.scheduler.running:
            regime = regimes.regime(len(row.ids))
            if regime != row.regime:
                row.again += row.held
                row.close(self._keep_if_current)
                space = self._space(row, regime)
                row.grow_into(self.cache.open(row.ids, space), space, regime)

    def _space(self, row: Row, regime: int | None = None) -> str:
        """Where a row's keys are kept: by weights, rope regime (the row's own) and namespace."""
        regime = row.regime if regime is None else regime
        return f"{self._generation}:{regime}:{row.request.namespace}"

    def _spaces(self, namespace: str) -> set[str]:
        """The spaces of a namespace that hold anything of the current weights."""
        return {
            space
            for space in self.cache.spaces()
            if space.split(":", 2)[::2] == [str(self._generation), namespace]
        }

    def _watch(self, changed: bool) -> None:
        """Held keys belong to the weights that made them; the owner may have changed those.

        Rows that run go on, as a plain ``generate`` would, but nothing of theirs is kept.
        """
        if changed:
            log.info("the model's weights or adapters changed; kept tokens are dropped")
            self._generation += 1
            self.cache.clear()
            self._outdated = self.cache.spaces()

    def _parts(self, batch: Batch) -> list[Batch]:
        """What goes into one forward each: the rows of one regime, or one row after another."""
        if not self.runner.together:
            return [[work] for work in batch]
        parts: dict[int, Batch] = {}
        for work in batch:
            parts.setdefault(work.row.regime, []).append(work)
        return list(parts.values())

    def _forward(self, batch: Batch) -> list[tuple[Batch, Tensor]]:
        """Forward a batch; when that fails, with less at once, in the end row by row.

        Out of memory in a packed forward has no single culprit: kept tokens go first, then the
        step is halved; only a row that fails alone fails.
        """
        try:
            return [(batch, self._run(batch))]
        except UnsupportedModel as error:
            self._unsupported(batch, error)
            return []
        except BaseException as error:  # a hook of the owner's may raise anything
            if out_of_memory(error):
                self.cache.clear()
            kind = type(error).__name__
            log.warning("a forward of %d rows failed (%s); retrying", len(batch), kind)
            return self._retry(batch)

    def _retry(self, batch: Batch) -> list[tuple[Batch, Tensor]]:
        done: list[tuple[Batch, Tensor]] = []
        for work in batch:
            try:
                done.append(self._alone(work))
            except UnsupportedModel as error:
                self._unsupported(batch, error)
                return done
            except BaseException as error:
                kind = type(error).__name__
                failure = RowFailed(f"the forward of this call failed: {kind}: {error}")
                failure.__cause__ = error
                self._end(work.row, failure)
        return done

    def _unsupported(self, batch: Batch, error: UnsupportedModel) -> None:
        """The runner cannot do this exactly: all rows go on with the other, or these end."""
        try:
            self._move(error)
        except UnsupportedModel as final:
            for work in batch:
                self._end(work.row, final)

    def _move(self, error: UnsupportedModel) -> None:
        """Take every row to the fallback runner, where it goes on from its own ids.

        Raises:
            UnsupportedModel: there is no other way than the one that failed.
        """
        packed = self.choice.kind == "packed" and self._config.runner == "auto"
        if not packed or self._model.training:
            raise error
        choice = unchecked_fallback(str(error))
        if self._config.check_model:
            choice = choose_fallback(self._model, choice.reason)
        log.warning("the engine goes on with the fallback runner: %s", choice.reason)
        before, rows = self.runner, list(self.scheduler.running)
        for row in rows:
            row.close()
        self.close()
        self._use(open_backend(self._model, self._config, choice))
        self.runner.forwards, self.runner.tokens = before.forwards, before.tokens
        for row in rows:
            self._open(row)

    def _alone(self, work: Work) -> tuple[Batch, Tensor]:
        """One row's work, halved until it fits into memory."""
        while True:
            try:
                return [work], self._run([work])
            except BaseException as error:
                if not out_of_memory(error) or len(work.ids) == 1:
                    raise
                work = Work(work.row, work.ids[: len(work.ids) // 2], last=False)

    def _run(self, batch: Batch) -> Tensor:
        inputs = [
            RowInput(work.row.sequence, work.ids, work.last, len(work.row.ids)) for work in batch
        ]
        logits = self.runner.forward(inputs)
        for work in batch:
            work.row.forwarded += len(work.ids)
            if work.row.held in work.row.plan.at:
                self._keep_if_current(work.row)
        return logits

    def _advance(self, batch: Batch, logits: Tensor) -> None:
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

    def _keep_if_current(self, row: Row) -> None:
        if row.space == self._space(row):
            self._keep(row)

    def _keep(self, row: Row) -> None:
        """Kept or not, the row goes on: what cannot be kept is forwarded again some day."""
        if not self.runner.regimes.keeps(row.regime):
            return
        try:
            self.cache.keep(row.sequence, row.ids, row.space)
        except Exception as error:  # keeping may copy
            if not out_of_memory(error):
                log.exception("tokens could not be kept; all that was kept is dropped")
            self.cache.clear()

    def _drop_outdated(self) -> None:
        """What rows of older weights leased could not be dropped when the weights changed."""
        for space in self._outdated:
            self.cache.forget(space)
        self._outdated &= self.cache.spaces()

    def _end(self, row: Row, error: BaseException | None) -> None:
        """Take a row out. What it forwarded is certain and kept, whatever ended it."""
        self.scheduler.remove(row)
        current = row.space == self._space(row)
        try:
            row.close(self._keep if current else None)
            if not current:
                self._drop_outdated()
        finally:  # whatever goes wrong here, nobody waits for ever
            if error is not None:
                row.channel.put(error)

    def _drop_cancelled(self) -> None:
        for row in self.scheduler.everyone():
            if row.cancelled:
                self._end(row, Cancelled("the call was cancelled"))

"""Random traces on a runner, held against cold runs: rows continue, fork and are cropped.

Shares no code with the check at load, and runs on other sizes, rows and weights than it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cachefriendly.engine.fallback import FallbackRunner
from cachefriendly.engine.runner import PackedRunner
from cachefriendly.engine.runners import RowInput, RunnerChoice
from cachefriendly.kv.extent import Ledger
from cachefriendly.kv.fallback_sequence import FallbackSequence
from cachefriendly.kv.sequence import Sequence as PackedSequence

__all__ = ["TOLERANCE", "Trace", "corrupted_token_effect", "run_trace"]

TOLERANCE = 1e-4  # of the logit scale, float32
_NUDGE = 3e-6  # relative; rounding differs by about 1e-6
_NUDGES = 12


@dataclass(slots=True)
class Trace:
    """What a trace saw. ``wrong``: steps outside the tolerance that no near tie explains."""

    steps: int = 0
    wrong: int = 0
    near_ties: int = 0
    error: float = 0.0  # largest of the steps that are no near ties, relative to the scale
    scale: float = 0.0


@dataclass(slots=True)
class _Row:
    sequence: Any
    ids: list[int]


@dataclass(slots=True)
class _Runs:
    """A runner, and the cold model beside it."""

    runner: Any
    new: Callable[[], Any]
    cold: Any
    trace: Trace = field(default_factory=Trace)
    said: list[tuple[list[int], Tensor]] = field(default_factory=list)

    def forward(self, rows: Sequence[_Row], more: Sequence[list[int]]) -> None:
        """One step: every row goes on by its ids."""
        inputs = [RowInput(row.sequence, ids) for row, ids in zip(rows, more, strict=True)]
        logits = self.runner.forward(inputs)
        for row, ids, got in zip(rows, more, logits, strict=True):
            row.ids = [*row.ids, *ids]
            self.said.append((row.ids, got))

    def settle(self) -> None:
        """Compare everything said with cold runs, the longest rows first: one cold run tells the
        logits behind every beginning of its row."""
        runs: list[tuple[list[int], Tensor]] = []
        for ids, got in sorted(self.said, key=lambda step: -len(step[0])):
            whole = next((out for row, out in runs if row[: len(ids)] == ids), None)
            if whole is None:
                whole = _cold(self.cold, ids)
                runs.append((ids, whole))
            self._compare(ids, got, whole[len(ids) - 1])

    def _compare(self, ids: list[int], got: Tensor, want: Tensor) -> None:
        trace = self.trace
        trace.steps += 1
        trace.scale = max(trace.scale, float(want.abs().max()))
        error = float((got - want).abs().max()) / trace.scale
        if error <= TOLERANCE:
            trace.error = max(trace.error, error)
        elif _is_near_tie(self.cold, ids, got, TOLERANCE * trace.scale):
            trace.near_ties += 1
        else:  # NaN ends here too
            trace.wrong += 1
            trace.error = max(trace.error, error) if math.isfinite(error) else math.inf


def run_trace(model: Any, cold: Any, choice: RunnerChoice, *, seed: int = 0) -> Trace:
    """Three rows in random chunks, then decoding, forks in the same step, crops.

    Args:
        model: what the runner gets; ``cold``: the same weights, untouched.
    """
    runs = _open(model, cold, choice)
    rng = random.Random(seed)
    vocabulary = cold.config.get_text_config(decoder=True).vocab_size

    def ids(n: int) -> list[int]:
        return [rng.randrange(vocabulary) for _ in range(n)]

    try:
        with torch.inference_mode():
            rows = [_Row(runs.new(), []) for _ in range(3)]
            _prefill(runs, rows, [ids(n) for n in (75, 40, 17)], rng)
            for _ in range(3):  # single tokens beside a chunk
                runs.forward(rows, [ids(1), ids(1), ids(rng.randint(2, 9))])
            fork = _Row(rows[0].sequence.fork(), rows[0].ids)
            runs.forward([fork, rows[0]], [ids(5), ids(1)])
            for row in (fork, rows[1]):
                _crop(row, rng)
                runs.forward([row], [ids(rng.randint(1, 12))])
                runs.forward([row], [ids(1)])
            runs.forward([rows[0], rows[2]], [ids(2), ids(1)])
    finally:
        runs.runner.close()
    runs.settle()
    return runs.trace


def corrupted_token_effect(model: Any, cold: Any) -> float:
    """How much the logits move, relative to their scale, when one cached token is zeroed.

    The token is three before the new one, inside every window. Packed runner.
    """
    runs = _open(model, cold, RunnerChoice("packed"))
    ids = [(7 * i) % 300 + 1 for i in range(30)]
    sequence = runs.new()
    try:
        runs.runner.forward([RowInput(sequence, ids)])
        (piece,) = sequence.pieces
        with torch.inference_mode():
            for slot in piece.extent.slots():
                for tensor in piece.extent.read(slot, piece.stop - 3, piece.stop - 2):
                    tensor.zero_()
        (got,) = runs.runner.forward([RowInput(sequence, [5])])
    finally:
        runs.runner.close()
    want = _cold(cold, [*ids, 5])[-1]
    return float((got - want).abs().max() / want.abs().max())


def _open(model: Any, cold: Any, choice: RunnerChoice) -> _Runs:
    ledger = Ledger()
    if choice.kind == "packed":
        return _Runs(PackedRunner(model), lambda: PackedSequence(ledger), cold)
    runner = FallbackRunner(model, step=choice.step)
    return _Runs(runner, lambda: FallbackSequence(ledger), cold)


def _prefill(
    runs: _Runs, rows: Sequence[_Row], wanted: Sequence[list[int]], rng: random.Random
) -> None:
    """Chunks of 1 to 23 tokens; a row that is complete waits for the others."""
    while unfinished := [i for i, row in enumerate(rows) if len(row.ids) < len(wanted[i])]:
        more = []
        for i in unfinished:
            done = len(rows[i].ids)
            more.append(wanted[i][done : done + rng.randint(1, 23)])
        runs.forward([rows[i] for i in unfinished], more)


def _crop(row: _Row, rng: random.Random) -> None:
    length = rng.randint(len(row.ids) // 2, len(row.ids) - 1)
    if row.sequence.can_crop(length):
        row.sequence.crop(length)
        row.ids = row.ids[:length]


def _cold(model: Any, ids: list[int]) -> Tensor:
    """[T, vocab]"""
    with torch.inference_mode():
        logits: Tensor = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    return logits.float()


def _is_near_tie(cold: Any, ids: list[int], got: Tensor, tol: float) -> bool:
    """Whether ``got`` is what a cold run gives that differs from the first by a rounding error.

    A router or an index that picks the best few has jumps: there two exact computations differ
    by much. A fault is not hidden by this: its logits are no cold run's.
    """
    weight = cold.get_input_embeddings().weight
    original = weight.detach().clone()
    generator = torch.Generator().manual_seed(3)
    try:
        with torch.no_grad():
            for _ in range(_NUDGES):
                noise = torch.randn(original.shape, generator=generator)
                weight.copy_(original * (1 + _NUDGE * noise))
                if float((got - _cold(cold, ids)[-1]).abs().max()) <= tol:
                    return True
    finally:
        with torch.no_grad():
            weight.copy_(original)
    return False

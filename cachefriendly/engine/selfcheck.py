"""Which runner computes what the model computes? Asked of a shrunken copy at load.

A short check on the real model would see nothing of a 4,096-token window, and in bf16 nothing at
all: transformers differs from itself by more than a fault would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from cachefriendly.compat_transformers import text_config
from cachefriendly.engine.fallback import FallbackRunner
from cachefriendly.engine.runner import PackedRunner
from cachefriendly.engine.runners import RowInput, RunnerChoice
from cachefriendly.engine.shrink import LONG_ROW, shrunken_copy
from cachefriendly.errors import UnsupportedModel
from cachefriendly.kv.extent import Ledger
from cachefriendly.kv.fallback_sequence import FallbackSequence
from cachefriendly.kv.sequence import Sequence

__all__ = ["check_fallback", "check_packed", "choose_fallback", "choose_runner", "largest_error"]

ROW_LENGTHS = (LONG_ROW, 12, 25)
# Recurrent layers compute in blocks of up to 64 tokens: one row is longer than two.
FALLBACK_ROW_LENGTHS = (150, 12, 25)
TOLERANCE = 1e-4  # of the logit scale, float32

Rows = list[list[int]]
Error = tuple[float, float]
"""Largest logit difference from a cold run, and the scale of the logits."""


def choose_runner(
    model: PreTrainedModel, wanted: Literal["auto", "packed", "fallback"] = "auto"
) -> RunnerChoice:
    """The runner that gives a cold run's logits on a small copy; takes about a second.

    Raises:
        UnsupportedModel: neither does, or not the wanted one, or nothing could be checked.
    """
    if wanted == "fallback":
        return choose_fallback(model, 'runner="fallback" was asked for')
    name = type(model).__name__
    try:
        check_packed(shrunken_copy(model))
    except UnsupportedModel as refusal:
        if wanted == "packed":
            raise UnsupportedModel(f"{name} cannot use the packed runner: {refusal}") from refusal
        return choose_fallback(model, str(refusal))
    return RunnerChoice("packed")


def choose_fallback(model: PreTrainedModel, reason: str) -> RunnerChoice:
    """The fallback runner, if it is exact; ``reason`` says why the packed one is not used.

    Raises:
        UnsupportedModel: it is not; the message has both reasons.
    """
    try:
        return RunnerChoice("fallback", reason, check_fallback(shrunken_copy(model)))
    except UnsupportedModel as refusal:
        raise UnsupportedModel(
            f"{type(model).__name__} runs exactly on no runner. Packed: {reason}. "
            f"Fallback: {refusal}"
        ) from refusal


def check_packed(small: PreTrainedModel) -> None:
    """Compare packed with eager on three rows in two chunks and a single token.

    Raises:
        UnsupportedModel: the results differ, or the copy does not run.
    """
    _checked(lambda: largest_error(small))


def check_fallback(small: PreTrainedModel) -> int | None:
    """Compare rows that are continued, cut and forked with cold runs of them.

    Returns:
        the most tokens a forward may have that continues a row; None for any number.

    Raises:
        UnsupportedModel: the results differ, or the copy does not run.
    """
    try:
        _checked(lambda: _fallback_error(small, None))
    except UnsupportedModel as refusal:
        try:
            _checked(lambda: _fallback_error(small, 1))
        except UnsupportedModel:
            raise refusal from None
        return 1
    return None


def _checked(measure: Callable[[], Error]) -> None:
    try:
        error, scale = measure()
    except UnsupportedModel:
        raise
    except Exception as failure:  # whatever a model's own code raises when run like this
        raise UnsupportedModel(f"{type(failure).__name__}: {failure}") from failure
    if not error <= TOLERANCE * scale:
        raise UnsupportedModel(
            f"other logits than a cold run's (difference {error:.2g} at scale {scale:.2g})"
        )


@torch.inference_mode()
def largest_error(small: PreTrainedModel) -> Error:
    """Packed against eager on random rows."""
    rows, cold = _rows(small, ROW_LENGTHS)
    expected = [cold(row) for row in rows]
    runner = PackedRunner(small)
    ledger = Ledger()
    sequences = [Sequence(ledger) for _ in rows]
    error = 0.0
    try:
        for part in range(3):
            cuts = [_part(row, part) for row in rows]
            pieces = zip(sequences, rows, cuts, strict=True)
            logits = runner.forward([RowInput(s, row[a:b]) for s, row, (a, b) in pieces])
            for got, want, (_, stop) in zip(logits, expected, cuts, strict=True):
                error = max(error, _difference(got, want[stop - 1]))
    finally:
        runner.close()
    return error, max(float(logits.abs().max()) for logits in expected)


@torch.inference_mode()
def _fallback_error(small: PreTrainedModel, step: int | None) -> Error:
    """The fallback runner against eager: rows take turns, one is forked and one cropped."""
    rows, cold = _rows(small, FALLBACK_ROW_LENGTHS if step is None else ROW_LENGTHS)
    runner = FallbackRunner(small, step=step)
    check = _FallbackCheck(runner, cold)
    ledger = Ledger()
    sequences = [FallbackSequence(ledger) for _ in rows]
    try:
        for part in range(4):
            for sequence, row in zip(sequences, rows, strict=True):
                check.advance(sequence, row, _cut_at(row, part))
            if part == 1:
                first, half = sequences[0], _cut_at(rows[0], 1)
                check.advance(first.fork(), rows[0][:half] + rows[1], half + len(rows[1]))
                if first.can_crop(half // 2):
                    shorter = first.fork()
                    shorter.crop(half // 2)
                    check.advance(shorter, rows[0][: half // 2] + rows[1], half)
    finally:
        runner.close()
    return check.error, check.scale


class _FallbackCheck:
    """Forwards what a row lacks and compares the last logits with a cold run of the whole."""

    def __init__(self, runner: FallbackRunner, cold: Callable[[list[int]], Tensor]) -> None:
        self._runner = runner
        self._cold = cold
        self.error = 0.0
        self.scale = 0.0

    def advance(self, sequence: FallbackSequence, row: list[int], upto: int) -> None:
        row = row[:upto]
        logits = self._runner.forward([RowInput(sequence, row[sequence.length :])])
        want = self._cold(row)
        self.error = max(self.error, _difference(logits[0], want[-1]))
        self.scale = max(self.scale, float(want.abs().max()))


def _rows(
    small: PreTrainedModel, lengths: tuple[int, ...]
) -> tuple[Rows, Callable[[list[int]], Tensor]]:
    """Random rows, and the cold run that tells the logits [n, vocab] of one."""
    generator = torch.Generator().manual_seed(1)
    ids = text_config(small).vocab_size
    rows = [torch.randint(0, ids, (n,), generator=generator).tolist() for n in lengths]

    def cold(row: list[int]) -> Tensor:
        logits: Tensor = small(input_ids=torch.tensor([row]), use_cache=False).logits[0]
        return logits

    return rows, cold


def _part(row: list[int], part: int) -> tuple[int, int]:
    """Two chunks, then one token: a model may read its mask by the index in a forward, and that
    is seen where positions lie far beyond the forward's own tokens."""
    ends = (0, len(row) // 2, len(row) - 1, len(row))
    return ends[part], ends[part + 1]


def _cut_at(row: list[int], part: int) -> int:
    """Ends of the four parts of a row: two chunks, then twice one token."""
    return (len(row) // 3, len(row) - 2, len(row) - 1, len(row))[part]


def _difference(got: Tensor, want: Tensor) -> float:
    return float((got - want.float()).abs().max())

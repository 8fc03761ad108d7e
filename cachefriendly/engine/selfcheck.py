"""Does packed attention compute what the model computes? Asked of a shrunken copy at load.

A short check on the real model would see nothing of a 4,096-token window, and in bf16 nothing at
all: transformers differs from itself by more than a fault would (EVIDENCE F2, F7).
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from cachefriendly.compat_transformers import text_config
from cachefriendly.engine.runner import PackedRunner, RowInput
from cachefriendly.engine.shrink import LONG_ROW, shrunken_copy
from cachefriendly.errors import UnsupportedModel
from cachefriendly.kv.extent import Ledger
from cachefriendly.kv.sequence import Sequence

__all__ = ["check_architecture", "largest_error"]

ROW_LENGTHS = (LONG_ROW, 12, 25)
TOLERANCE = 1e-4  # of the logit scale, float32


def check_architecture(model: PreTrainedModel) -> None:
    """Compare packed with eager on three rows in two chunks; takes about a second.

    Raises:
        UnsupportedModel: the results differ, or the architecture could not be checked.
    """
    name = type(model).__name__
    try:
        small = shrunken_copy(model)
        error, scale = largest_error(small)
    except UnsupportedModel as refusal:
        raise UnsupportedModel(f"{name} does not run on the packed runner: {refusal}") from refusal
    except Exception as failure:
        raise UnsupportedModel(
            f"{name} could not be checked on a small copy ({type(failure).__name__}: {failure}); "
            "EngineConfig(check_model=False) runs it unchecked"
        ) from failure
    if not error <= TOLERANCE * scale:
        raise UnsupportedModel(
            f"{name} gives other logits on the packed runner (difference {error:.2g} at scale "
            f"{scale:.2g}); its attention does something this runner does not know"
        )


@torch.inference_mode()
def largest_error(small: PreTrainedModel) -> tuple[float, float]:
    """Largest logit difference between packed and eager on random rows, and the logit scale."""
    generator = torch.Generator().manual_seed(1)
    ids = text_config(small).vocab_size
    rows = [torch.randint(0, ids, (n,), generator=generator).tolist() for n in ROW_LENGTHS]
    expected = [small(input_ids=torch.tensor([row]), use_cache=False).logits[0] for row in rows]
    runner = PackedRunner(small)
    ledger = Ledger()
    sequences = [Sequence(ledger) for _ in rows]
    error = 0.0
    for cuts in (_halves(rows, first=True), _halves(rows, first=False)):
        logits = runner.forward(
            [RowInput(s, row[a:b]) for s, row, (a, b) in zip(sequences, rows, cuts, strict=True)]
        )
        for got, want, (_, stop) in zip(logits, expected, cuts, strict=True):
            error = max(error, _difference(got, want[stop - 1]))
    return error, max(float(logits.abs().max()) for logits in expected)


def _halves(rows: list[list[int]], *, first: bool) -> list[tuple[int, int]]:
    return [(0, len(r) // 2) if first else (len(r) // 2, len(r)) for r in rows]


def _difference(got: Tensor, want: Tensor) -> float:
    return float((got - want.float()).abs().max())

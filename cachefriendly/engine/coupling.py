"""Do tokens of one forward influence each other outside attention? Asked of quantized layers.

A layer that scales its activations by the loudest token of the forward gives a quiet token other
values beside a loud one: other rows, other chunks, or a past that is not forwarded again would
change what a row says.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cachefriendly.engine.devices import input_device

__all__ = ["rows_influence_each_other"]

LOUDER = 1000.0
# Kernels for one and for two rows may round differently; a shared scale silences the quiet row.
TOLERANCE = 0.1


def rows_influence_each_other(model: Any) -> str | None:
    """Why tokens of one forward depend on each other, or None. Costs about two decoding steps.

    Only layers that are no plain `torch.nn.Linear` are asked: plain ones cannot.
    """
    device = input_device(model)
    with torch.inference_mode():
        for name, module in model.named_modules():
            width = _quantized_width(module)
            if width is not None and _coupled(module, width, device, model.dtype):
                return (
                    f"{name} ({type(module).__name__}) scales its activations by the loudest "
                    "token of a forward"
                )
    return None


def _quantized_width(module: nn.Module) -> int | None:
    """How many features go into a quantized linear layer; None for every other module."""
    width, weight = getattr(module, "in_features", None), getattr(module, "weight", None)
    plain = type(module) is nn.Linear and type(weight) is nn.Parameter
    return width if isinstance(width, int) and not plain else None


def _coupled(module: nn.Module, width: int, device: torch.device, dtype: torch.dtype) -> bool:
    generator = torch.Generator().manual_seed(1)
    quiet, loud = torch.randn(2, width, generator=generator)
    alone = _output(module, quiet[None].to(device, dtype))
    beside = _output(module, torch.stack([quiet, loud * LOUDER]).to(device, dtype))
    return float((alone[0] - beside[0]).abs().max()) > TOLERANCE * float(alone.abs().max())


def _output(module: nn.Module, tokens: Tensor) -> Tensor:
    output: Tensor = module(tokens[None])
    return output[0].float()

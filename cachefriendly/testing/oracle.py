"""The cold run: what the model says when nothing is cached. Every path is compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["cold_generate", "cold_logits"]


def cold_logits(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """Logits [T, vocab] of one plain forward over ``ids``, without a cache.

    Runs on the model as it is handed in, with the attention its owner chose: give it one that no
    engine holds when the comparison must not share any code with the engine.
    """
    with torch.inference_mode():
        batch = torch.tensor([list(ids)], device=model.device)
        logits: torch.Tensor = model(input_ids=batch, use_cache=False).logits[0]
    return logits


def cold_generate(model: Any, ids: Sequence[int], **generate: Any) -> list[int]:
    """New ids of transformers' own ``generate`` on ``ids``; greedy unless ``do_sample`` is given.

    A stop token that was generated is part of the result.
    """
    batch = torch.tensor([list(ids)], device=model.device)
    generate.setdefault("do_sample", False)
    with torch.inference_mode():
        out = model.generate(batch, attention_mask=torch.ones_like(batch), **generate)
    new_ids: list[int] = out[0, len(ids) :].tolist()
    return new_ids

"""Tiny models whose keys depend on the length of the sequence, with their switch at 24 tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cachefriendly.testing import tiny_model
from cachefriendly.testing.oracle import cold_logits

SWITCH = 24
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "original_max_position_embeddings": SWITCH,
    "factor": 4.0,
    "short_factor": [1.0] * 8,
    "long_factor": [4.0 - index / 4 for index in range(8)],
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}

RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "phi3 longrope": (
        "phi3",
        {
            "rope_parameters": LONGROPE,
            "original_max_position_embeddings": SWITCH,
            "max_position_embeddings": 96,
        },
    ),
    "phi3 longrope, half of the head": (
        "phi3",
        {
            "rope_parameters": LONGROPE
            | {
                "short_factor": [1.0] * 4,
                "long_factor": [4.0, 3.0, 2.0, 1.5],
                "partial_rotary_factor": 0.5,
            },
            "partial_rotary_factor": 0.5,
            "original_max_position_embeddings": SWITCH,
            "max_position_embeddings": 96,
        },
    ),
    "phimoe longrope, scale by length": (
        "phimoe",
        {
            "rope_parameters": LONGROPE | {"short_mscale": 1.0, "long_mscale": 1.5},
            "max_position_embeddings": 96,
            "num_local_experts": 4,
            "sliding_window": None,
        },
    ),
    "llama dynamic": ("llama", {"rope_parameters": DYNAMIC, "max_position_embeddings": SWITCH}),
    "gemma3, dynamic in full layers": (
        "gemma3",
        {
            "rope_parameters": {"full_attention": DYNAMIC, "sliding_attention": PLAIN},
            "max_position_embeddings": SWITCH,
        },
    ),
    "gemma3, longrope in full layers": (
        "gemma3",
        {
            "rope_parameters": {"full_attention": LONGROPE, "sliding_attention": PLAIN},
            "max_position_embeddings": 96,
        },
    ),
}
NAMES = tuple(RECIPES)


def rope_model(name: str) -> Any:
    """A fresh model: no forward has left anything in its rotary modules."""
    architecture, options = RECIPES[name]
    return tiny_model(architecture, **options)


class Cold:
    """The cold run, each time on rotary modules that no other length has touched."""

    def __init__(self, name: str) -> None:
        self._name = name

    def last(self, ids: Sequence[int]) -> Tensor:
        """Logits [vocab] behind ``ids``."""
        return cold_logits(rope_model(self._name), ids)[-1]


def ids_of(length: int, seed: int = 1) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (length,), generator=generator).tolist()

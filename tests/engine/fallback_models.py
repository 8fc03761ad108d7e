"""Tiny models that run on the fallback runner: recurrent, convolutional, hybrid, alibi."""

from __future__ import annotations

from typing import Any

import torch

from cachefriendly.testing import tiny_model

LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
RECIPES: dict[str, dict[str, Any]] = {
    # Every expert is used: with a choice, a router gap of 1e-7 flips one now and then.
    "qwen3_next": {
        **LINEAR,
        "num_experts": 2,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    },
    "qwen3_5_text": LINEAR,
    "nemotron_h": {
        "layers_block_type": ["mamba", "attention", "mlp"],
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "ssm_state_size": 16,
        "n_groups": 2,
        "chunk_size": 8,
    },
    "falcon_h1": {
        "mamba_d_ssm": 64,
        "mamba_n_heads": 4,
        "mamba_d_head": 16,
        "mamba_d_state": 16,
        "mamba_n_groups": 1,
        "mamba_chunk_size": 8,
    },
    "mamba2": {
        "num_heads": 8,
        "head_dim": 16,
        "state_size": 16,
        "n_groups": 2,
        "chunk_size": 8,
        "expand": 2,
    },
    "mamba": {"state_size": 16},
    "rwkv": {},
    "bloom": {"n_head": 4, "n_layer": 2},
    "llama": {},
    "mistral": {},
}


def fallback_model(name: str) -> Any:
    """A random model of this architecture; equal in every call."""
    return tiny_model(name, **RECIPES[name])


def random_ids(n: int, seed: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(0, 256, (n,), generator=generator).tolist())


def layers_of(model: Any) -> Any:
    """The list of a model's layers, whatever its field is called."""
    base = model.base_model
    for name in ("layers", "h", "blocks"):
        if hasattr(base, name):
            return getattr(base, name)
    raise AssertionError("no layers")

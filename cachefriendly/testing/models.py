"""Tiny random models by architecture name: real transformers classes, milliseconds to run."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from cachefriendly.testing.tokenizer import END_ID, START_ID

__all__ = ["ARCHITECTURES", "tiny_model"]

_SMALL: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "bos_token_id": START_ID,
    "eos_token_id": END_ID,
    "pad_token_id": END_ID,
}
_BOTH_KINDS = ["sliding_attention", "full_attention"]

_RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "mistral": ("mistral", {"sliding_window": 8}),
    "gemma2": (
        "gemma2",
        {"sliding_window": 8, "layer_types": _BOTH_KINDS, "query_pre_attn_scalar": 16},
    ),
    "gemma3": (
        "gemma3_text",
        {"sliding_window": 8, "layer_types": _BOTH_KINDS, "query_pre_attn_scalar": 16},
    ),
    "gpt2": ("gpt2", {"n_inner": 96}),
    "phi3": ("phi3", {"sliding_window": None}),
    "gpt_oss": (
        "gpt_oss",
        {
            "sliding_window": 8,
            "layer_types": _BOTH_KINDS,
            "max_position_embeddings": 131072,  # what its default yarn factor of 32 is made for
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
        },
    ),
}
ARCHITECTURES: tuple[str, ...] = tuple(_RECIPES)
"""Names with a recipe of their own; any other causal-LM ``model_type`` of transformers is tried."""


def tiny_model(
    name: str = "llama", *, seed: int = 0, initializer_range: float = 0.1, **overrides: Any
) -> Any:
    """A random model of this architecture: float32, eval, vocabulary of `byte_tokenizer`.

    Windows are 8 tokens wide, so that a short test crosses them. ``initializer_range`` is five
    times the usual one on purpose: at 0.02 the logits of a random model hardly depend on the
    context, and a corrupted cached token goes unseen in every second run. ``overrides`` are
    fields of the model's config. The caller's random state is left as it was.
    """
    model_type, recipe = _RECIPES.get(name, (name, {}))
    options = {**_SMALL, **recipe, "initializer_range": initializer_range, **overrides}
    config = AutoConfig.for_model(model_type, **options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    return model.eval()

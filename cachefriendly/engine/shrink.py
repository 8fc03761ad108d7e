"""A small copy of an architecture: same code paths, random weights, windows of 8 tokens."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers import PreTrainedModel

__all__ = ["LONG_ROW", "shrunken_copy"]

WINDOW = 8
LONG_ROW = 37
VOCABULARY = 320

# Fields by what they size; those a configuration does not have are left out. ``head_dim`` stays:
# rope tables and MRoPE sections are made for it.
_SMALLER = {
    "intermediate_size": 96,
    "ffn_hidden_size": 96,
    "n_inner": 96,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "mlp_dim": 96,
    "vocab_size": VOCABULARY,
    "vocab_size_per_layer_input": VOCABULARY,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "sliding_window": WINDOW,
    "attention_chunk_size": WINDOW,
    "first_k_dense_replace": 1,
}
_LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_TOKEN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id")


def shrunken_copy(model: PreTrainedModel) -> PreTrainedModel:
    """The architecture of ``model`` with 2-4 layers covering every layer kind, in float32, eager.

    ``initializer_range`` is 0.1: at the usual 0.02 a wrong cached token often goes unseen.
    """
    config = copy.deepcopy(model.config)
    text = config.get_text_config(decoder=True)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    _shrink(text)
    generator_state = torch.get_rng_state()
    try:
        torch.manual_seed(0)
        small: PreTrainedModel = type(model)._from_config(
            config, attn_implementation="eager", dtype=torch.float32
        )
    finally:
        torch.set_rng_state(generator_state)
    small.eval()
    return small


def _shrink(text: Any) -> None:
    heads = text.num_attention_heads
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // heads
    small_kv = min(kv_heads, 2)
    small_heads = small_kv * (heads // kv_heads)
    _set(text, "num_attention_heads", small_heads)
    _set(text, "num_key_value_heads", small_kv)
    _set(text, "hidden_size", small_heads * head_dim)
    for name, value in _SMALLER.items():
        if isinstance(getattr(text, name, None), int):
            _set(text, name, min(value, getattr(text, name)) if name != "sliding_window" else value)
    for name in _TOKEN_IDS:
        _set(text, name, None)
    text.initializer_range = 0.1
    _fewer_layers(text)


def _fewer_layers(text: Any) -> None:
    kinds = getattr(text, "layer_types", None)
    kept = 3
    if kinds:
        chosen = _covering(list(kinds))
        text.layer_types = [kinds[index] for index in chosen]
        kept = len(chosen)
    for name in _LAYER_COUNTS:
        if isinstance(getattr(text, name, None), int):
            _set(text, name, kept)


def _covering(kinds: list[str]) -> list[int]:
    """First and second layer of each kind, in order; at least two layers."""
    chosen = [i for i, kind in enumerate(kinds) if kinds[:i].count(kind) < 2]
    return chosen if len(chosen) >= 2 else list(range(min(3, len(kinds))))


def _set(text: Any, name: str, value: Any) -> None:
    if hasattr(text, name):
        setattr(text, name, value)

"""The model types of transformers' causal-LM registry, as configurations that can be built."""

from __future__ import annotations

import copy
from typing import Any

import transformers
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from cachefriendly.errors import UnsupportedModel

__all__ = ["class_of", "default_config", "registered_types", "windowed"]

_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
# Default configurations that transformers itself cannot run: what their checkpoints say.
_MISSING: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [9, 18, 27]},  # it cannot count tokens without attention
    "cohere_compass_text": {  # rope per layer type, none given
        "rope_parameters": {"full_attention": _ROPE, "sliding_attention": _ROPE}
    },
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "clip_qkv": 8.0, "kv_n_heads": 8}},
    "deepseek_v2": {"num_experts_per_tok": 6, "n_group": 8, "topk_group": 3},
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6},
    "granitemoehybrid": {"layer_types": ["mamba", "mamba", "mamba", "attention"] * 8},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 8},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "qwen4_exp_text": {
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 256,
        "indexer_budget": 64,
        "indexer_compress_ratio": 4,
        "output_gate_type": "sigmoid",
    },
    "xmod": {"default_language": "en_XX"},
}
_MISSING["qwen4_exp"] = {"text_config": _MISSING["qwen4_exp_text"]}
_NO_WINDOW = "sliding_window"


def registered_types() -> tuple[str, ...]:
    """Every type of the installed transformers, as its registry lists them."""
    return tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def class_of(model_type: str) -> type[PreTrainedModel]:
    """The class that `AutoModelForCausalLM` makes of this type."""
    found: type[PreTrainedModel] = getattr(
        transformers, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type]
    )
    return found


def default_config(model_type: str) -> PreTrainedConfig:
    """The type's default configuration, as a decoder where it can be either.

    Raises:
        UnsupportedModel: the configuration's own class refuses its defaults.
    """
    try:
        config: PreTrainedConfig = AutoConfig.for_model(model_type, **_MISSING.get(model_type, {}))
    except Exception as failure:  # validators raise types of their own
        text = " ".join(str(failure).split())
        raise UnsupportedModel(f"its default configuration is not valid: {text}") from failure
    if hasattr(config, "is_decoder") and not config.is_encoder_decoder:
        config.is_decoder = True
    return config


def windowed(config: PreTrainedConfig) -> PreTrainedConfig | None:
    """The same with sliding windows on, where they are an option that is off by default."""
    config = copy.deepcopy(config)
    text: Any = config.get_text_config(decoder=True)
    if getattr(text, _NO_WINDOW, 0) is not None:
        return None
    text.sliding_window = 4096
    if hasattr(text, "use_sliding_window"):
        text.use_sliding_window = True
        kinds = getattr(text, "layer_types", None)
        if isinstance(kinds, list):
            text.layer_types = ["sliding_attention" if i % 2 else k for i, k in enumerate(kinds)]
    return config

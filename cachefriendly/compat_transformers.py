"""Version quirks of transformers, found by behaviour, each explained once.

Supported: 5.17 to the newest 5.x.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel

from cachefriendly.errors import RequestError

__all__ = [
    "cache_argument",
    "forward_arguments",
    "generation_config_for",
    "is_checkpointing",
    "logits_processors",
    "out_of_memory",
    "pipeline_settings",
    "returned_cache",
    "stop_ids",
    "text_config",
]


# ``past_key_values`` until 5.23, ``cache`` from 5.24 on; Mamba's was ``cache_params``, RWKV's is
# ``state``. Outputs carry old names beside the new one, so the newest comes first.
_CACHE_NAMES = ("cache", "past_key_values", "cache_params", "state")


def cache_argument(model: PreTrainedModel) -> str:
    """Name of forward's cache argument."""
    taken = forward_arguments(model)
    return next((name for name in _CACHE_NAMES if name in taken), "past_key_values")


def forward_arguments(model: PreTrainedModel) -> frozenset[str]:
    """Names that the model's forward takes."""
    return frozenset(inspect.signature(model.forward).parameters)


def returned_cache(output: Any) -> Any:
    """The cache that a forward returned, or None."""
    found = (getattr(output, name, None) for name in _CACHE_NAMES)
    return next((cache for cache in found if cache is not None), None)


def is_checkpointing(model: PreTrainedModel) -> bool:
    """Whether activations are recomputed: ``is_gradient_checkpointing`` was renamed in 5.24."""
    for name in ("is_activation_checkpointing", "is_gradient_checkpointing"):
        if hasattr(type(model), name):
            return bool(getattr(model, name))
    return False


def out_of_memory(error: BaseException) -> bool:
    """Whether torch could not get memory: CUDA raises its own type, the CPU allocator a plain
    RuntimeError with this text."""
    text = str(error)
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        "DefaultCPUAllocator: can't allocate memory" in text or "not enough memory" in text
    )


def text_config(model: PreTrainedModel) -> Any:
    """The configuration of the language model inside: vision-language classes nest it."""
    return model.config.get_text_config(decoder=True)


# Fields that choose one of the next ids for one row; they reach transformers' processors.
EFFECTIVE = frozenset(
    {
        "bad_words_ids",
        "begin_suppress_tokens",
        "do_sample",
        "encoder_no_repeat_ngram_size",
        "encoder_repetition_penalty",
        "epsilon_cutoff",
        "eta_cutoff",
        "exponential_decay_length_penalty",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "min_length",
        "min_new_tokens",
        "min_p",
        "no_repeat_ngram_size",
        "remove_invalid_values",
        "renormalize_logits",
        "repetition_penalty",
        "sequence_bias",
        "suppress_tokens",
        "temperature",
        "top_h",
        "top_k",
        "top_p",
        "typical_p",
        "watermarking_config",
    }
)
# Fields that say the same under another name here.
ELSEWHERE = {
    "eos_token_id": "stop_token_ids",
    "max_length": "max_tokens or max_new_tokens (new tokens only)",
    "max_new_tokens": "max_tokens",
    "max_time": "a timeout",
    "stop_strings": "stop",
}


def _refuse_settings(settings: Mapping[str, Any]) -> None:
    """Refuse what is unknown, and what would be accepted without any effect."""
    defaults = vars(GenerationConfig()) | GenerationConfig._get_default_generation_params()
    for name, value in settings.items():
        if name not in defaults:
            meant = get_close_matches(name, [*defaults, "seed", "stop"], n=1)
            raise RequestError(
                f"unknown generation option {name!r}; "
                + (f"did you mean {meant[0]!r}? " if meant else "")
                + "it is not a field of transformers.GenerationConfig"
            )
        if name in ELSEWHERE:
            raise RequestError(f"generation option {name!r} is set with {ELSEWHERE[name]} here")
        harmless = (
            value is None
            or value == defaults[name]
            or (name == "use_cache" and value)
            or name == "pad_token_id"  # what fills up rows of a batch: here each is alone
        )
        if name not in EFFECTIVE and not harmless:
            raise RequestError(
                f"generation option {name}={value!r} has no effect on this engine (it generates "
                "one reply, token by token); leave it out"
            )


def generation_config_for(
    model: PreTrainedModel, settings: Mapping[str, Any], prompt_tokens: int, max_new_tokens: int
) -> GenerationConfig:
    """The model's generation config with this call's settings on top, merged as `generate` does.

    Raises:
        RequestError: a setting is not a field of `GenerationConfig`, has no effect here, or
            transformers refuses it.
    """
    _refuse_settings(settings)
    config = copy.deepcopy(model.generation_config)
    try:
        config.update(**GenerationConfig._get_default_generation_params(), defaults_only=True)
        config.update(
            **settings,
            max_new_tokens=max_new_tokens,
            max_length=prompt_tokens + max_new_tokens,
        )
        if config.min_new_tokens is not None:
            config.min_length = prompt_tokens + config.min_new_tokens
    except (ValueError, TypeError) as error:
        raise RequestError(f"transformers refuses these generation settings: {error}") from error
    return config


def logits_processors(
    model: PreTrainedModel, config: GenerationConfig, prompt_ids: Tensor
) -> LogitsProcessorList:
    """transformers' own processors and warpers for one row, in its own order.

    Args:
        prompt_ids: [1, prompt_tokens]
    """
    prepared = copy.copy(config)  # the call below stores tensors on it
    owner: Any = model  # both methods are private; mypy takes them for tensors
    owner._prepare_special_tokens(
        prepared, kwargs_has_attention_mask=True, device=prompt_ids.device
    )
    processors: LogitsProcessorList = owner._get_logits_processor(
        generation_config=prepared,
        input_ids_seq_length=prompt_ids.shape[1],
        encoder_input_ids=prompt_ids,
        prefix_allowed_tokens_fn=None,
        logits_processor=LogitsProcessorList(),
        device=str(prompt_ids.device),
        model_kwargs={},
    )
    return processors


def stop_ids(model: PreTrainedModel, tokenizer: Any) -> frozenset[int]:
    """Ids that end a reply: the generation config's, else the config's, else the tokenizer's."""
    for owner in (model.generation_config, text_config(model), tokenizer):
        found = getattr(owner, "eos_token_id", None)
        if found is not None:
            ids = found if isinstance(found, list | tuple) else [found]
            return frozenset(int(i) for i in ids)
    return frozenset()


def pipeline_settings(pipeline: Any) -> dict[str, Any]:
    """Generation settings of a transformers pipeline beside its model's: the owner's, and the
    pipeline's own defaults where neither says (256 new tokens, sampled at 0.7).

    Earlier versions merge them, and transformers' global defaults, when the pipeline is made,
    later ones for each call. Anything else that holds a model has none.
    """
    given = dict(getattr(pipeline, "_forward_params", {}))
    if hasattr(pipeline, "_prepare_generate_kwargs"):
        given = pipeline._prepare_generate_kwargs(given)
        own: Any = None
        merged = given.get("generation_config")
    else:
        merged = getattr(pipeline, "generation_config", None)
        own = getattr(pipeline.model, "generation_config", None)
    if isinstance(merged, GenerationConfig):
        given = {**_changed(merged, own), **given}
    known = vars(GenerationConfig()).keys() - {"bos_token_id", "pad_token_id"}
    return {k: v for k, v in given.items() if k in known and not k.startswith("_")}


def _changed(merged: GenerationConfig, own: Any) -> dict[str, Any]:
    """Fields that are not what the model's own config, or transformers where it is silent, says."""
    silent = {**GenerationConfig._get_default_generation_params(), "do_sample": None}
    fields = {k: v for k, v in merged.to_diff_dict().items() if k != "transformers_version"}
    said = {name: getattr(own, name, None) for name in fields}
    return {k: v for k, v in fields.items() if v != (silent.get(k) if said[k] is None else said[k])}

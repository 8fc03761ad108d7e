"""Configurations made small: few, narrow layers of every kind, by rules on field names."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig

from cachefriendly.engine.small_layers import chosen_layers, keep_layers
from cachefriendly.errors import UnsupportedModel

__all__ = ["SMALL", "Sizes", "small_config"]

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a small configuration shall have. ``window``: tokens, also of attention chunks."""

    window: int = 8
    vocabulary: int = 320
    kv_heads: int = 2
    layers: int = 4


SMALL = Sizes()

# Field names by what they size, matched as a whole.
_LAYERS = re.compile(
    r"(num_(hidden_|encoder_|decoder_)?layers|n_layers?|(en|de)coder_layers|num_blocks|depth"
    r"|num_layers_per_stack)"
)
_HEADS = re.compile(
    r"(num_(global_|decoder_|encoder_)?attention_heads|num_attention_heads_per_layer"
    r"|swa_num_attention_heads|n_heads?|num_heads|attention_heads|(en|de)coder_attention_heads)"
)
_KV_HEADS = re.compile(
    r"(num_(global_)?key_value_heads|swa_num_key_value_heads|num_kv_heads|kv_n_heads|n_head_kv"
    r"|num_query_groups)"
)
# Not the heads of an index: with few of them a sum of rectified scores is often exactly zero, and
# which of equal scores is picked depends on the shape of the forward.
_STATE_HEADS = re.compile(
    r"(mamba_n_heads|n_mamba_heads|mamba_num_heads|linear_num_(key_|value_)?heads)"
)
_CAPS = (
    (re.compile(r"(vocab_size\w*|unpadded_vocab_size)"), "vocabulary"),
    (
        re.compile(
            r"(sliding_window(_size)?|attention_chunk_size|attention_window_size|window_size"
            r"|local_attention|keep_window_size|index_topk|mamba_chunk_size|chunk_size"
            r"|floor_scale|log_scaling_n_floor|rel_extent)"
        ),
        "window",
    ),
)
_SMALLER: tuple[tuple[re.Pattern[str], int], ...] = (
    (
        re.compile(
            r"\w*intermediate_size|\w*ffn_(hidden_size|dim)|n_inner|mlp_dim|feed_forward_size"
        ),
        96,
    ),
    (re.compile(r"d_ff|dff|dim_ff|d_inner"), 96),
    (re.compile(r"num_(local_)?experts|n_routed_experts|moe_num_experts|zero_expert_num"), 4),
    (re.compile(r"num_experts_per_tok(en)?|moe_top_?k|moe_k|top_k_experts|n_group|n_groups"), 2),
    (re.compile(r"\w*mamba_n_?groups|num_expert_group|index_topk_blocks"), 2),
    (re.compile(r"topk_group"), 1),
    (re.compile(r"(q|kv|o)_lora_rank|laurel_rank|hidden_size_per_layer_input|adapter_rank"), 32),
    (re.compile(r"index_block_size|block_size"), 8),
)
# Widths that many models expect to be the hidden size, or a multiple of it.
_TIED = re.compile(
    r"(attention_hidden_size|attention_head_dim|lru_width|(input_|output_)?embedding_(size|dim)"
    r"|word_embed_proj_dim|mamba_d_ssm)"
)
# Recurrent layers whose heads times head width are ``expand`` times the hidden size.
_INNER = (
    ("mamba_n_heads", "mamba_d_head", "mamba_expand"),
    ("n_mamba_heads", "mamba_headdim", "mamba_expand"),
    ("num_heads", "head_dim", "expand"),
)
# Not those of images and audio: out of the vocabulary no random row can hold them.
_HIDDEN = re.compile(r"hidden_size|d_model|embed_dim")
# Widths of a vision part that are the text's hidden size.
_JOINED = re.compile(r"hidden_size|out_hidden_size|text_hidden_size|\w*output_dim")
_TOKEN_IDS = re.compile(r"(pad|bos|eos|sep|cls|mask|decoder_start)_token_id")
_SCALES = re.compile(r"(initializer_range|init_std|embed_init_std|embedding_initializer_range)")


def small_config(
    config: PreTrainedConfig, sizes: Sizes, *, widths: bool = True
) -> PreTrainedConfig:
    """A copy of ``config`` for a model of a few million parameters.

    Fields are written past their setters: a class checks sizes one at a time, and between two
    writes they do not fit together.

    Args:
        widths: whether layers get fewer heads and a smaller hidden size too.
    """
    small: PreTrainedConfig = copy.deepcopy(config)
    vars(small).pop("quantization_config", None)
    text = small.get_text_config(decoder=True)
    if all(text is not nested for nested in _nested(small)):
        text = small  # older encoder-decoder configurations hand out a copy
    before = getattr(text, "hidden_size", None)
    _shrink_text(text, sizes, widths=widths)
    after = getattr(text, "hidden_size", None)
    for other in _nested(small):
        _at_most(vars(other), _TOKEN_IDS, sizes.vocabulary - 1)
        if other is not text and other not in _parts(text):
            _shrink_other(vars(other), before, after, widths=widths)
    return small


def _nested(config: PreTrainedConfig) -> list[PreTrainedConfig]:
    """The configuration and every one inside it."""
    found = [config]
    for value in vars(config).values():
        if isinstance(value, PreTrainedConfig):
            found += _nested(value)
    return found


def _shrink_text(text: Any, sizes: Sizes, *, widths: bool) -> None:
    overrides = _take_overrides(text)
    fields = vars(text)
    layers = getattr(text, "num_hidden_layers", None)
    if not isinstance(layers, int):
        raise UnsupportedModel(f"{type(text).__name__} does not say how many layers there are")
    chosen = chosen_layers(fields, overrides, layers, sizes.layers)
    keep_layers(fields, chosen, layers)
    _map_ints(fields, _LAYERS, lambda _: len(chosen))
    kept = {new: dict(overrides[old]) for new, old in enumerate(chosen) if old in overrides}
    hidden = getattr(text, "hidden_size", None)
    parts = [*(vars(part) for part in _parts(text)), *kept.values()]
    for part in (fields, *parts):
        _cap(part, sizes)
    if widths and isinstance(hidden, int):
        _narrow(text, fields, sizes)
        for part in parts:
            _fewer_heads(part, sizes)
            _map_ints(part, _HIDDEN, lambda n: text.hidden_size if n == hidden else n)
    # 0.1 at a width of 64. Wider layers add up more terms, and saturated attention hides a wrong
    # token just as flat attention does.
    scale = min(0.1, 0.8 / (getattr(text, "hidden_size", None) or 64) ** 0.5)
    fields.update({name: scale for name in fields if _SCALES.fullmatch(name)})
    if kept:
        text.per_layer_config = kept


def _parts(text: PreTrainedConfig) -> list[PreTrainedConfig]:
    """Nested configurations without layers of their own: they describe the text's layers."""
    return [part for part in _nested(text)[1:] if not any(map(_LAYERS.fullmatch, vars(part)))]


def _take_overrides(text: PreTrainedConfig) -> dict[int, dict[str, Any]]:
    """Take the fields that differ per layer out: reading them raises while they are there."""
    said = text.to_dict().get("per_layer_config") or {}
    if hasattr(text, "_heterogeneity_spec"):
        text.per_layer_config = None
    return {int(layer): dict(fields) for layer, fields in said.items()}


def _shrink_other(fields: Fields, before: int | None, after: int | None, *, widths: bool) -> None:
    """Vision and audio parts run on no text: two layers, and the widths they are joined with."""
    _at_most(fields, _LAYERS, 2)
    for pattern, most in _SMALLER[:2]:
        _at_most(fields, pattern, most)
    joined = {
        name: after for name, value in fields.items() if value == before and _JOINED.fullmatch(name)
    }
    heads = max(
        (n for name, n in fields.items() if _HEADS.fullmatch(name) and _is_int(n)), default=0
    )
    if widths and heads > 2:
        _map_ints(fields, _HEADS, lambda n: max(1, n * 2 // heads))
        _map_ints(fields, _HIDDEN, lambda n: n * 2 // heads)
    fields.update(joined)


def _cap(fields: Fields, sizes: Sizes) -> None:
    for pattern, what in _CAPS:
        _at_most(fields, pattern, getattr(sizes, what))
    for pattern, most in _SMALLER:
        _at_most(fields, pattern, most)


def _narrow(text: Any, fields: Fields, sizes: Sizes) -> None:
    """Fewer heads of the same width, and a hidden size that fits them."""
    before: int = text.hidden_size
    inner = {names: _inner(fields, names, before) for names in _INNER}
    old_heads = getattr(text, "num_attention_heads", None)
    head_dim = getattr(text, "head_dim", None)
    _fewer_heads(fields, sizes)
    heads = getattr(text, "num_attention_heads", None)
    if isinstance(old_heads, int) and isinstance(heads, int):
        width = head_dim if isinstance(head_dim, int) else before // old_heads
        text.hidden_size = heads * width
    else:
        text.hidden_size = min(before, 64)
    after = text.hidden_size
    _map_ints(fields, _TIED, lambda n: max(1, n * after // before))
    for (heads_name, width_name, _), inside in inner.items():
        if inside is not None:
            fields[width_name] = inside * after // before // fields[heads_name]


def _inner(fields: Fields, names: tuple[str, str, str], hidden: int) -> int | None:
    """Width of a recurrent layer inside, where heads and head width follow from it."""
    heads, width, expand = (fields.get(name) for name in names)
    if not (isinstance(heads, int) and isinstance(width, int) and expand):
        return None
    inside = int(fields.get("mamba_d_ssm") or expand * hidden)
    return inside if heads * width == inside else None


def _fewer_heads(fields: Fields, sizes: Sizes) -> None:
    heads = [n for name, n in fields.items() if _HEADS.fullmatch(name) and isinstance(n, int)]
    kv_heads = [n for name, n in fields.items() if _KV_HEADS.fullmatch(name) and isinstance(n, int)]
    _at_most(fields, _KV_HEADS, sizes.kv_heads)
    most = max(heads, default=1)
    shared = bool(kv_heads) and min(kv_heads) < most
    few = min([*kv_heads, sizes.kv_heads])
    _at_most(fields, _HEADS, 2 * few if shared else few)
    _at_most(fields, _STATE_HEADS, 4)


def _at_most(fields: Fields, names: re.Pattern[str], most: int) -> None:
    _map_ints(fields, names, lambda n: min(n, most))


def _map_ints(fields: Fields, names: re.Pattern[str], change: Callable[[int], int]) -> None:
    """Change the integers, also those in lists, under matching names."""
    for name, value in fields.items():
        if not names.fullmatch(name):
            continue
        if isinstance(value, list | tuple):
            fields[name] = type(value)(change(v) if _is_int(v) else v for v in value)
        elif _is_int(value):
            fields[name] = change(value)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

"""Which layers of an architecture a small copy keeps: some of every kind, in their order."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import Any

__all__ = ["chosen_layers", "keep_layers"]

Fields = dict[str, Any]
Overrides = Mapping[int, Mapping[str, Any]]

# How configurations say which layers are special, beside lists with one entry per layer.
_LAYER_IDS = re.compile(
    r"\w*(layer_ids|layer_indices|attn_idxs|moe_layers|mlp_only_layers|cross_attention_layers)"
)
_COUNT_AT_START = re.compile(
    r"(first_k_dense_replace|num_dense_layers|num_hash_layers|moe_layer_start_index"
    r"|max_window_layers|loop_layer_index_(start|end))"
)
_LAST_INDEX = re.compile(r"moe_layer_end_index")
_COUNT_AT_END = re.compile(r"num_kv_shared_layers")
_EVERY = re.compile(r"(decoder_sparse_step|moe_layer_(interval|freq)|interleave_moe_layer_step)")
_PATTERN = re.compile(r"(block_types|\w*layer_pattern)")
# Period and offset of two interleaved kinds; four layers show all combinations.
_PERIODS = {
    "attn_layer_period": 4,
    "attn_layer_offset": 2,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
}


def chosen_layers(fields: Fields, overrides: Overrides, layers: int, wanted: int) -> list[int]:
    """Ascending indices out of ``layers`` layers: two of every kind where that stays within
    ``wanted``, one of every kind in any case."""
    kinds = [_kind(fields, overrides, layers, index) for index in range(layers)]
    distinct = len(set(kinds))
    least = max(wanted - 1 if distinct == 1 else 2, *_pattern_lengths(fields, layers))
    each = max(1, wanted // distinct)
    chosen = [i for i, kind in enumerate(kinds) if kinds[:i].count(kind) < each]
    extra = (i for i in range(layers) if i not in chosen)
    while len(chosen) < min(least, layers):
        chosen.append(next(extra))
    return sorted(chosen)


def keep_layers(fields: Fields, chosen: list[int], layers: int) -> None:
    """Rewrite everything in ``fields`` that counts or lists layers for the chosen ones."""
    for name, value in list(fields.items()):
        if _is_ids(name, value):
            fields[name] = [new for new, old in enumerate(chosen) if old in value]
        elif _is_per_layer(name, value, layers):
            fields[name] = type(value)(value[i] for i in chosen)
        elif name in _PERIODS:
            fields[name] = _PERIODS[name]
        elif isinstance(value, int) and not isinstance(value, bool):
            fields[name] = _scalar(name, value, chosen, layers)


def _scalar(name: str, value: int, chosen: list[int], layers: int) -> int:
    if _COUNT_AT_START.fullmatch(name):
        return sum(i < value for i in chosen)
    if _LAST_INDEX.fullmatch(name):
        return max((new for new, old in enumerate(chosen) if old <= value), default=-1)
    if _COUNT_AT_END.fullmatch(name):
        return sum(i >= layers - value for i in chosen)
    if _EVERY.fullmatch(name):
        return min(value, 2)
    return value


def _kind(fields: Fields, overrides: Overrides, layers: int, index: int) -> Hashable:
    """Everything the configuration says about one layer."""
    said: list[Hashable] = [repr(overrides.get(index))]
    for name, value in sorted(fields.items()):
        if _is_ids(name, value):
            said.append(index in value)
        elif _is_per_layer(name, value, layers):
            said.append(repr(value[index]))
        elif isinstance(value, int) and not isinstance(value, bool):
            if _COUNT_AT_START.fullmatch(name):
                said.append(index < value)
            elif _LAST_INDEX.fullmatch(name):
                said.append(index <= value)
            elif _COUNT_AT_END.fullmatch(name):
                said.append(index >= layers - value)
            elif _EVERY.fullmatch(name) and value > 1:
                said.append((index + 1) % value == 0)
    return tuple(said)


def _is_ids(name: str, value: Any) -> bool:
    return _LAYER_IDS.fullmatch(name) is not None and isinstance(value, list | tuple)


def _is_per_layer(name: str, value: Any, layers: int) -> bool:
    return isinstance(value, list | tuple) and len(value) == layers and not _is_ids(name, value)


def _pattern_lengths(fields: Fields, layers: int) -> list[int]:
    """Lengths of lists that repeat over the layers; the periods count as four."""
    lengths = [4] if any(name in fields for name in _PERIODS) else [2]
    for name, value in fields.items():
        if _PATTERN.fullmatch(name) and isinstance(value, list | tuple) and len(value) < layers:
            lengths.append(len(value))
    return lengths

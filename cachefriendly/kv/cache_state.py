"""What a model returned as its cache, taken apart: tensors that grow by token, and the rest.

transformers keeps one layer object per model layer. Full attention re-binds ``keys`` and
``values`` to longer tensors and never writes into them; recurrent and convolutional layers write
their state in place. Some models return a plain list of tensors, or keep more beside the layers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.cache_utils import DynamicLayer

__all__ = [
    "Parts",
    "cropped",
    "cut",
    "forked",
    "growing",
    "joined",
    "stateless",
    "storage_bytes",
    "without",
]

Parts: TypeAlias = dict[tuple[int, str], Tensor]
"""Tensors with one entry per token, by layer and attribute."""

# Which dimension of a layer's tensor counts tokens. Nothing else is ever shared or cut.
_TOKEN_DIMENSION = {"keys": -2, "values": -2, "indexer_keys": 1}


def forked(state: Any) -> Any:
    """A state that can be continued without changing this one. Growing tensors are shared."""
    return _copied(state, shared=_TOKEN_DIMENSION)


def growing(state: Any, length: int) -> Parts:
    """The tensors that hold one entry for each of ``length`` tokens."""
    parts: Parts = {}
    for index, layer in enumerate(_layers(state)):
        if not isinstance(layer, DynamicLayer) or layer.is_sliding:
            continue
        for name, dimension in _TOKEN_DIMENSION.items():
            tensor = getattr(layer, name, None)
            if isinstance(tensor, Tensor) and _tokens(tensor, dimension) == length:
                parts[index, name] = tensor
    return parts


def stateless(state: Any, length: int) -> bool:
    """Whether every tensor of a state grows by token, so that any prefix of it is whole."""
    parts = {id(tensor) for tensor in growing(state, length).values()}
    return bool(parts) and all(id(tensor) in parts for tensor in _tensors(state))


def cropped(state: Any, length: int, to: int) -> Any:
    """The first ``to`` of ``length`` tokens of a state that is `stateless`."""
    parts = growing(state, length)
    return joined(state, [cut(parts, 0, to)])


def cut(parts: Parts, start: int, stop: int) -> Parts:
    """Views of tokens [start, stop)."""
    return {
        (layer, name): tensor.narrow(_TOKEN_DIMENSION[name], start, stop - start)
        for (layer, name), tensor in parts.items()
    }


def without(state: Any, parts: Parts) -> Any:
    """A copy of a state without its growing tensors; what is left shares no memory with it."""
    bare = _shallow(state)
    for layer, name in parts:
        setattr(bare.layers[layer], name, None)
    return _copied(bare, shared={})


def joined(bare: Any, runs: Sequence[Parts]) -> Any:
    """A state whose growing tensors are those of ``runs``, one run after another."""
    state = _shallow(bare)
    for layer, name in runs[0] if runs else ():
        pieces = [run[layer, name] for run in runs]
        whole = pieces[0] if len(pieces) == 1 else torch.cat(pieces, _TOKEN_DIMENSION[name])
        setattr(state.layers[layer], name, whole)
    return state


def storage_bytes(value: Any) -> int:
    """Physical bytes behind all tensors of a state; what they share counts once."""
    storages = {}
    for tensor in _tensors(value):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def _layers(state: Any) -> list[Any]:
    found: list[Any] = getattr(state, "layers", [])
    return found


def _tokens(tensor: Tensor, dimension: int) -> int:
    return tensor.shape[dimension] if tensor.dim() >= abs(dimension) + (dimension >= 0) else -1


def _shallow(state: Any) -> Any:
    """New cache and layer objects over the same tensors."""
    if not hasattr(state, "layers"):
        return state
    copied = copy.copy(state)
    copied.layers = [copy.copy(layer) for layer in state.layers]
    return copied


def _copied(value: Any, *, shared: Mapping[str, Any]) -> Any:
    """A copy with tensors of its own, but for the growing ones of full attention layers."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {key: _copied(item, shared=shared) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(item, shared=shared) for item in value)
    if not _is_state(value):
        return value
    twin = copy.copy(value)
    for name, item in vars(value).items():
        if not (name in shared and isinstance(value, DynamicLayer)):
            setattr(twin, name, _copied(item, shared=shared))
    return twin


def _is_state(value: Any) -> bool:
    """Cache and layer objects, transformers' own or a model's: whatever has fields of its own."""
    foreign = isinstance(value, type | nn.Module | PreTrainedConfig) or callable(value)
    return hasattr(value, "__dict__") and not foreign


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif _is_state(value):
        yield from _tensors(vars(value))

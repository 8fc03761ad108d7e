"""Taking over a model's attention and giving it back; in between its owner notices nothing."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from cachefriendly.compat_transformers import is_checkpointing
from cachefriendly.errors import ConfigError, UnsupportedModel

__all__ = ["IMPLEMENTATION", "EvalMode", "Takeover", "delegate_attention", "delegate_mask"]

IMPLEMENTATION = "cachefriendly"

# Who took which configuration, by its id (configurations are not hashable). A takeover holds its
# configurations, so an id is not recycled while its entry lives.
_TAKEN: weakref.WeakValueDictionary[int, Takeover] = weakref.WeakValueDictionary()


class EvalMode:
    """Puts a model into eval mode, and back those of its modules that were in training."""

    def __init__(self, model: nn.Module) -> None:
        self._trained = [module for module in model.modules() if module.training]
        model.eval()

    def undo(self) -> None:
        """Safe to repeat."""
        for module in self._trained:
            module.training = True  # not `train`: parts below it may be frozen
        self._trained = []


class Takeover:
    """Switches a model to our attention and back; everything else of the model stays as it was.

    Raises:
        ConfigError: another engine runs this model.
        UnsupportedModel: the model does not follow transformers' attention interface.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._before: str = model.config._attn_implementation
        if self._before == IMPLEMENTATION and id(model.config) not in _TAKEN:
            self._before = "sdpa"  # a copy of a taken model: nobody knows what it used before
            model.set_attn_implementation(self._before)
        if self._before == IMPLEMENTATION:
            raise ConfigError(
                "another open Engine runs this model; share that Engine (engine=...) or close it"
            )
        self._undone = False
        self._checkpointing = is_checkpointing(model)
        self._configs = _configs(model)
        self.before = {id(config): config._attn_implementation for config in self._configs}
        _TAKEN.update((id(config), self) for config in self._configs)
        self._eval = EvalMode(model)
        if self._checkpointing:
            model.gradient_checkpointing_disable()
        model.set_attn_implementation(IMPLEMENTATION)
        if model.config._attn_implementation != IMPLEMENTATION:
            self.undo()
            raise UnsupportedModel(
                f"{type(model).__name__} does not use transformers' attention interface"
            )

    def undo(self) -> None:
        """Give the model back as it was. Safe to repeat."""
        if self._undone:
            return
        self._undone = True
        if any(config._attn_implementation == IMPLEMENTATION for config in self._configs):
            self._model.set_attn_implementation(self._before)  # else its owner chose meanwhile
        for config in self._configs:
            _TAKEN.pop(id(config), None)
        self._eval.undo()
        if self._checkpointing:
            self._model.gradient_checkpointing_enable()


def delegate_mask(*args: Any, **kwargs: Any) -> Any:
    """The mask that the owner's own attention wants."""
    before = _before(kwargs.get("config"))
    return AttentionMaskInterface()[before](*args, **kwargs)


def delegate_attention(
    module: nn.Module, tensors: tuple[Tensor, Tensor, Tensor, Any], options: Mapping[str, Any]
) -> tuple[Tensor, Any]:
    """The owner's own call: the attention that was there before.

    Args:
        tensors: query [B, heads, n, d], key and value [B, kv_heads, m, d], mask.
        options: keyword arguments as the model gave them; those that are None are left out.
    """
    before = _before(getattr(module, "config", None))
    given = {name: value for name, value in options.items() if value is not None}
    attention = AttentionInterface().get(before, _eager_of(module))
    result: tuple[Tensor, Any] = attention(module, *tensors, **given)
    return result


def _before(config: Any) -> str:
    taken = _TAKEN.get(id(config))
    return taken.before[id(config)] if taken is not None else "sdpa"


def _eager_of(module: nn.Module) -> Any:
    """Eager attention is no entry of the interface: each modeling file has its own."""
    home = sys.modules[type(module).__module__]
    return getattr(home, "eager_attention_forward", sdpa_attention_forward)


def _configs(model: PreTrainedModel) -> list[Any]:
    """Every distinct configuration object inside a model."""
    found = {id(m.config): m.config for m in model.modules() if isinstance(m, PreTrainedModel)}
    return list(found.values())

"""Which weights a model computes with right now, cheap enough to ask before every step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from cachefriendly.engine.devices import offloaded_tensors

__all__ = ["WeightsWatch"]

log = logging.getLogger(__name__)

LOOKS = 3


class WeightsWatch:
    """Notices that a model's weights or adapters changed since it was last asked.

    Sums torch's version counters (an optimiser step, a merge or ``load_state_dict`` raise them)
    and compares the identity of the parameters and the state of every adapter layer. `changed`
    looks at the parameters it knows; `changed_at_all` walks the model again, so that it also
    notices parameters that were replaced or added, and samples the values. Buffers that
    checkpoints hold count as parameters (a router's bias, some quantized weights); offloaded
    ones are the tensors that accelerate copies in for each forward. The owner may add modules or
    adapters in another thread right now: what could not be looked at counts as changed, then and
    at the next look. What no counter shows stays
    unseen: a write behind torch's back to a few elements, a hook that changes activations (most
    hooks only look), a file of disk-offloaded weights that is written anew. After such a change
    call `Engine.clear`.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._parameters: list[Tensor] = []
        self._adapter_layers: list[Any] = []
        self._seen: Any = None
        self._sampled: Any = None
        self.changed_at_all()

    def changed(self) -> bool:
        """Of what was known at the last `changed_at_all`."""
        return self._look(self._compare)

    def changed_at_all(self) -> bool:
        """`changed`, of everything there is now."""
        return self._look(self._compare_all)

    def _look(self, compare: Callable[[], bool]) -> bool:
        """A look that was disturbed is taken again: what disturbed it is over in a moment."""
        for _ in range(LOOKS):
            try:
                return compare()
            except Exception as error:  # a dictionary changed its size, a layer is half built
                log.warning("the model's weights could not be looked at: %s", error)
        self._seen = None
        return True

    def _compare(self) -> bool:
        before, self._seen = self._seen, self._state()
        return bool(before != self._seen)

    def _compare_all(self) -> bool:
        self._collect()
        now, sampled = self._state(), self._sample()
        before = self._seen, self._sampled
        self._seen, self._sampled = now, sampled
        return before != (now, sampled)

    def _sample(self) -> tuple[float, ...]:
        """First, middle and last element of every parameter, added up per device and dtype.

        Writes through ``.data`` (peft merges that way) or numpy raise no version counter.
        """
        groups: dict[tuple[Any, ...], list[Tensor]] = {}
        for parameter in self._parameters:
            if parameter.is_contiguous() and parameter.numel():
                flat = parameter.detach().view(-1)
                picked = (flat[0], flat[flat.numel() // 2], flat[-1])
                groups.setdefault((parameter.device, parameter.dtype), []).extend(picked)
        sums = []
        for values in groups.values():
            stacked = torch.stack(values).double()
            weights = torch.arange(1, len(values) + 1, device=stacked.device, dtype=torch.double)
            sums.append(float((stacked * weights).sum()))
        return tuple(sums)

    def _collect(self) -> None:
        held = [*self._model.parameters(), *_checkpointed_buffers(self._model)]
        held = [tensor for tensor in held if not tensor.is_meta]
        held += offloaded_tensors(self._model)
        self._parameters = [plain for tensor in held for plain in _plain(tensor)]
        self._adapter_layers = [module for module in self._model.modules() if _is_adapter(module)]

    def _state(self) -> tuple[Any, ...]:
        versions = sum(map(_version, self._parameters))
        addresses = hash(tuple(map(Tensor.data_ptr, self._parameters)))
        return versions, addresses, tuple(map(_adapter_state, self._adapter_layers))


def _checkpointed_buffers(model: PreTrainedModel) -> Iterator[Tensor]:
    """Without what a model computes for itself: rotary frequencies, masks."""
    for module in model.modules():
        computed = module._non_persistent_buffers_set
        for name, buffer in module.named_buffers(recurse=False):
            if name not in computed:
                yield buffer


def _plain(tensor: Any) -> Iterator[Tensor]:
    """A tensor itself, or the plain tensors that a quantized one is made of."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        yield tensor
        return
    for name in flatten()[0]:
        inner = getattr(tensor, name)
        if isinstance(inner, Tensor):
            yield from _plain(inner)


def _is_adapter(module: Any) -> bool:
    """peft's tuner layers; whole models have methods of these names."""
    return isinstance(getattr(module, "active_adapters", None), list | tuple | set)


def _version(parameter: Tensor) -> int:
    # Inference tensors have no counter; they cannot be written in place either.
    return 0 if parameter.is_inference() else int(parameter._version)


def _adapter_state(layer: Any) -> tuple[Any, ...]:
    scaling, merged = getattr(layer, "scaling", {}), getattr(layer, "merged_adapters", ())
    return tuple(layer.active_adapters), bool(layer.disable_adapters), str(scaling), str(merged)

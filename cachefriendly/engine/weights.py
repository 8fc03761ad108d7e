"""Which weights a model computes with right now, cheap enough to ask before every step."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

__all__ = ["WeightsWatch"]


class WeightsWatch:
    """Notices that a model's weights or adapters changed since it was last asked.

    Sums torch's version counters (an optimiser step, a merge or ``load_state_dict`` raise them)
    and compares the identity of the parameters and the state of every adapter layer. `changed`
    looks at the parameters it knows; `changed_at_all` walks the model again and so also notices
    parameters that were replaced or added.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._parameters: list[Tensor] = []
        self._adapter_layers: list[Any] = []
        self._collect()
        self._seen = self._state()

    def changed(self) -> bool:
        before, self._seen = self._seen, self._state()
        return before != self._seen

    def changed_at_all(self) -> bool:
        self._collect()
        return self.changed()

    def _collect(self) -> None:
        self._parameters = list(self._model.parameters())
        self._adapter_layers = [module for module in self._model.modules() if _is_adapter(module)]

    def _state(self) -> tuple[Any, ...]:
        versions = sum(map(_version, self._parameters))
        addresses = hash(tuple(map(Tensor.data_ptr, self._parameters)))
        return versions, addresses, tuple(map(_adapter_state, self._adapter_layers))


def _is_adapter(module: Any) -> bool:
    """peft's tuner layers; whole models have methods of these names."""
    return isinstance(getattr(module, "active_adapters", None), list | tuple | set)


def _version(parameter: Tensor) -> int:
    # Inference tensors have no counter; they cannot be written in place either.
    return 0 if parameter.is_inference() else int(parameter._version)


def _adapter_state(layer: Any) -> tuple[Any, ...]:
    scaling = getattr(layer, "scaling", {})
    return tuple(layer.active_adapters), bool(layer.disable_adapters), str(scaling)

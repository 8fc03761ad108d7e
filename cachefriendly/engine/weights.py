"""Which weights a model computes with right now, cheap enough to ask before every call."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

__all__ = ["weights_version"]


def weights_version(model: PreTrainedModel) -> tuple[Any, ...]:
    """Changes whenever a parameter is written in place, replaced, or an adapter is switched.

    Sums torch's version counters (an optimiser step, ``merge``, ``load_state_dict`` raise them)
    and adds the identity of the parameters and the state of every adapter layer.
    """
    versions = 0
    addresses = 0
    for parameter in model.parameters():
        versions += _version(parameter)
        addresses ^= parameter.data_ptr() * 31 + parameter.numel()
    return versions, addresses, _adapters(model)


def _version(parameter: Tensor) -> int:
    # Inference tensors have no counter; they cannot be written in place either.
    return 0 if parameter.is_inference() else int(parameter._version)


def _adapters(model: PreTrainedModel) -> tuple[Any, ...]:
    if not getattr(model, "_hf_peft_config_loaded", False) and not hasattr(model, "peft_config"):
        return ()
    state = []
    for name, module in model.named_modules():
        if hasattr(module, "active_adapters") and hasattr(module, "disable_adapters"):
            scaling = getattr(module, "scaling", {})
            state.append(
                (name, tuple(module.active_adapters), module.disable_adapters, str(scaling))
            )
    return tuple(state)

"""Where a model runs: accelerate may spread it over devices or keep its weights elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["input_device", "offloaded_tensors", "spread_over_devices"]


def input_device(model: Any) -> torch.device:
    """The device token ids go to: where the model's first layer runs.

    Offloaded parameters lie on the meta device between forwards, so accelerate's hooks come first.
    """
    embedding = model.get_input_embeddings()
    for module in (model, embedding):
        for hook in _hooks(module):
            if getattr(hook, "execution_device", None) is not None:
                return torch.device(hook.execution_device)
    for parameter in (*embedding.parameters(), *model.parameters()):
        if not parameter.is_meta:
            return torch.device(parameter.device)
    return torch.device("cpu")


def spread_over_devices(model: nn.Module) -> bool:
    """Whether layers run on more than one device, so that no tensor fits every layer."""
    devices = {p.device for p in model.parameters() if not p.is_meta}
    for module in model.modules():
        for hook in _hooks(module):
            if getattr(hook, "execution_device", None) is not None:
                devices.add(torch.device(hook.execution_device))
    return len(devices) > 1


def offloaded_tensors(model: nn.Module) -> list[Tensor]:
    """Weights that accelerate keeps in CPU memory and copies to a device for each forward.

    Weights that it keeps on disk are not read: a file is not changed in place.
    """
    found: dict[int, Tensor] = {}
    for module in model.modules():
        for hook in _hooks(module):
            if getattr(hook, "offload", False):
                found |= {id(t): t for t in _in_memory(getattr(hook, "weights_map", None))}
    return list(found.values())


def _hooks(module: nn.Module) -> list[Any]:
    hook = getattr(module, "_hf_hook", None)
    if hook is None:
        return []
    return list(getattr(hook, "hooks", (hook,)))  # several hooks of one module are a sequence


def _in_memory(weights: Any) -> Iterator[Tensor]:
    """Tensors behind accelerate's weight maps: mappings, or views of a loader's state dict."""
    while hasattr(weights, "dataset"):
        weights = weights.dataset
    held = getattr(weights, "state_dict", weights)
    if isinstance(held, Mapping):
        yield from (t for t in held.values() if isinstance(t, Tensor) and not t.is_meta)

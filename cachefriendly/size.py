"""How many bytes the keys and values of one token take, by asking the architecture itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from cachefriendly.compat_transformers import cache_argument
from cachefriendly.errors import ConfigError, UnsupportedModel

__all__ = ["KvLayer", "KvSize", "kv_size", "weightless_model"]


@dataclass(frozen=True, slots=True)
class KvLayer:
    """Layers that are alike. ``window`` is the number of tokens they look back, None for all."""

    count: int
    bytes_per_token: int
    window: int | None


@dataclass(frozen=True, slots=True)
class KvSize:
    """Keys and values of a model in one dtype."""

    architecture: str
    dtype: str
    layers: tuple[KvLayer, ...]

    @property
    def bytes_per_token(self) -> int:
        """Bytes one more token takes while every layer still keeps it."""
        return sum(layer.count * layer.bytes_per_token for layer in self.layers)

    def bytes_at(self, tokens: int) -> int:
        """Bytes a conversation of this length needs to go on: windowed layers keep their window."""
        return sum(
            layer.count * layer.bytes_per_token * min(tokens, layer.window or tokens)
            for layer in self.layers
        )

    def to_dict(self, lengths: Sequence[int] = ()) -> dict[str, Any]:
        return {
            **asdict(self),
            "bytes_per_token": self.bytes_per_token,
            "bytes_at": {str(tokens): self.bytes_at(tokens) for tokens in lengths},
        }


def kv_size(model: str, *, dtype: str = "auto") -> KvSize:
    """Size of a local path or hub id; reads the config only, no weights.

    The architecture is built without memory (torch's meta device) and run on one token, so grouped
    heads, shared layers, windows and latent attention count as they are. Layers with a recurrent
    state hold nothing per token and are left out.

    Raises:
        ConfigError: the dtype is unknown.
        UnsupportedModel: the architecture does not run without memory.
    """
    config = AutoConfig.from_pretrained(model)
    kept_as = _dtype_named(dtype, config)
    built = weightless_model(model)
    try:
        layers = _filled_layers(built)
    except (RuntimeError, NotImplementedError) as error:
        raise UnsupportedModel(
            f"{type(built).__name__} does not run on the meta device ({error}); count 2 x layers x "
            "kv heads x head dim x bytes by hand"
        ) from error
    kinds = [(_token_numbers(layer) * kept_as.itemsize, _window(layer)) for layer in layers]
    groups = tuple(KvLayer(kinds.count(kind), *kind) for kind in dict.fromkeys(kinds))
    return KvSize(type(built).__name__, str(kept_as).removeprefix("torch."), groups)


def _dtype_named(name: str, config: Any) -> torch.dtype:
    dtype = getattr(torch, name, None) if name != "auto" else config.dtype or torch.float32
    if not isinstance(dtype, torch.dtype):
        raise ConfigError(f"dtype={name!r} is unknown; use 'auto' or a torch dtype name")
    return dtype


def weightless_model(model: str) -> Any:
    """The model's architecture on the meta device: real classes and shapes, no weights.

    In bfloat16, the one dtype that every kernel has a meta version for.
    """
    config = AutoConfig.from_pretrained(model)
    # With a padding token, forward looks for it in the ids: meta tensors have no values to look at.
    config.get_text_config(decoder=True).pad_token_id = None
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    return built.eval()


def _filled_layers(built: Any) -> list[Any]:
    config = built.config.get_text_config(decoder=True)
    cache = DynamicCache(config=config)
    ids = torch.zeros(1, 1, dtype=torch.long, device="meta")
    with torch.inference_mode():
        built(input_ids=ids, use_cache=True, **{cache_argument(built): cache})
    layers: list[Any] = cache.layers
    return [layer for layer in layers if isinstance(getattr(layer, "keys", None), torch.Tensor)]


def _token_numbers(layer: Any) -> int:
    return int(layer.keys.numel() + layer.values.numel())


def _window(layer: Any) -> int | None:
    return int(layer.sliding_window) if getattr(layer, "is_sliding", False) else None

"""Where a model comes from, and loading it once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from cachefriendly.engine.rope import rope_kinds
from cachefriendly.errors import ConfigError

__all__ = ["LoadedModel", "ModelSource", "context_window_of", "model_fingerprint"]


def _is_path(name: str) -> bool:
    return name.startswith((".", "~")) or Path(name).is_absolute()


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """transformers' own objects."""

    model: PreTrainedModel
    tokenizer: Any


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A local path or hub id and how to load it. ``dtype="auto"`` is the checkpoint's."""

    model: str
    tokenizer: str | None = None
    gguf_file: str | None = None
    dtype: str = "auto"
    device_map: str | tuple[tuple[str, Any], ...] | None = None  # a mapping as its items

    def load(self) -> LoadedModel:
        """Load weights and tokenizer; transformers shows its own progress bars.

        Raises:
            ConfigError: the dtype is unknown, or the folder holds no model.
            OSError: transformers' own, when the path or hub id cannot be read.
        """
        self._check_folder()
        options: dict[str, Any] = {"gguf_file": self.gguf_file} if self.gguf_file else {}
        tokenizer = AutoTokenizer.from_pretrained(self.tokenizer or self.model, **options)
        if self.device_map is not None:
            places = self.device_map
            options["device_map"] = places if isinstance(places, str) else dict(places)
        model = AutoModelForCausalLM.from_pretrained(self.model, dtype=self._dtype(), **options)
        return LoadedModel(model, tokenizer)

    def check_path(self) -> None:
        """Refuse a path that leads nowhere before anybody asks a hub for it."""
        for name, what in ((self.model, "model"), (self.tokenizer, "tokenizer")):
            path = Path(name or "").expanduser()
            if name and _is_path(name) and not path.exists():
                raise ConfigError(f"there is nothing at {name!r}; give a {what}'s folder or hub id")
        if Path(self.model).is_file():
            raise ConfigError(
                f"{self.model!r} is a file; give its folder, and gguf_file= with its name for GGUF"
            )

    def config(self) -> Any:
        """The transformers configuration; reads no weights.

        Raises:
            ConfigError: the folder holds no model.
        """
        self._check_folder()
        options: dict[str, Any] = {"gguf_file": self.gguf_file} if self.gguf_file else {}
        return AutoConfig.from_pretrained(self.model, **options)

    @property
    def name(self) -> str:
        """What reports and metadata call the model: a folder's own name, or the hub id."""
        path = Path(self.model)
        return path.resolve().name if path.is_dir() else self.model

    def _check_folder(self) -> None:
        # transformers would speak of the tokenizer and of packages to install.
        folder = Path(self.model)
        names = ("config.json", "adapter_config.json", self.gguf_file or "config.json")
        if folder.is_dir() and not any((folder / name).exists() for name in names):
            raise ConfigError(
                f"there is no config.json in {self.model!r}; give the folder of a saved model"
            )

    def _dtype(self) -> Any:
        if self.dtype == "auto":
            return "auto"
        found = getattr(torch, self.dtype, None)
        if not isinstance(found, torch.dtype):
            raise ConfigError(f"dtype={self.dtype!r} is unknown; use 'auto' or a torch dtype name")
        return found


def context_window_of(config: Any, wanted: int | None) -> int:
    """Tokens per sequence: the option, else what the model was built for.

    Args:
        config: a transformers configuration.

    Dynamic NTK goes beyond the trained length on demand: there every token forwards the whole
    sequence again, because its keys serve no other length.

    Raises:
        ConfigError: more than the model's positions reach, or nobody says how many.
    """
    text = config.get_text_config(decoder=True)
    limit = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None)
    window = limit if wanted is None else wanted
    if window is None:
        raise ConfigError("the model does not say its context length; set context_window=")
    if wanted is not None and limit is not None and wanted > limit and not _stretches(text):
        raise ConfigError(f"context_window={wanted} exceeds the model's {limit} positions")
    return int(window)


def _stretches(text: Any) -> bool:
    """Whether the model's frequencies adapt to any length (dynamic NTK; a fixed alpha does not)."""
    kinds = rope_kinds(text).values()
    return any("dynamic" in kind and not parameters.get("alpha") for kind, parameters in kinds)


def model_fingerprint(model: PreTrainedModel) -> str:
    """Eight hex digits over architecture, configuration and dtype; part of every handle."""
    payload = f"{type(model).__name__} {model.dtype} {model.config.to_json_string()}"
    return hashlib.blake2b(payload.encode(), digest_size=4).hexdigest()

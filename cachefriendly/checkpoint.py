"""The engine behind an adapter's arguments: one that is given, or one for a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from cachefriendly.config import EngineConfig
from cachefriendly.errors import ConfigError

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine

__all__ = ["Checkpoint", "check_config", "check_engine"]

# What `Engine.from_pretrained` takes; anything else is for transformers' own loader.
_ENGINE_OPTIONS: Final = frozenset({"dtype", "gguf_file"})


def check_engine(value: Any, config: Any = None, tokenizer: Any = None) -> Engine:
    """The value, when it is an engine or acts like one.

    Raises:
        ConfigError: it is none, or a config or a tokenizer beside it is not the one it has.
    """
    if not callable(getattr(value, "chat", None)):
        raise ConfigError(f"engine={type(value).__name__} is no cachefriendly Engine")
    check_config(config)
    if config is not None and config != value.config:
        raise ConfigError(
            "engine_config= cannot change an engine that exists; give it to the engine: "
            "Engine(model, tokenizer, config)"
        )
    if tokenizer is not None and tokenizer is not value.tokenizer:
        raise ConfigError(
            "tokenizer= cannot change an engine that exists; give it to the engine: "
            "Engine(model, tokenizer)"
        )
    return cast("Engine", value)


def check_config(value: Any) -> None:
    """Refuse an ``engine_config=`` that is none, with `ConfigError`."""
    if not isinstance(value, EngineConfig | None):
        raise ConfigError(
            f"engine_config={type(value).__name__} is no EngineConfig; "
            "give EngineConfig(kv_bytes=...), from cachefriendly"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What to load and how. ``model_kwargs`` are those of transformers' ``from_pretrained``.

    Attributes:
        model: a local path, a hub id, or a loaded model.
        tokenizer: a local path, a hub id, a loaded tokenizer, or None for the model's own.
    """

    model: Any
    tokenizer: Any = None
    device_map: Any = None
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    tokenizer_kwargs: Mapping[str, Any] = field(default_factory=dict)
    config: EngineConfig = field(default_factory=EngineConfig)

    def open(self) -> Engine:
        """The engine. By names alone it loads nothing yet and is shared with every engine opened
        from equal arguments; a loaded tokenizer is used as it is, so its model is loaded now.

        Raises:
            ConfigError: there is nothing at the path, or the config is no `EngineConfig`.
        """
        from cachefriendly.engine.engine import Engine
        from cachefriendly.engine.loader import ModelSource

        check_config(self.config)
        if isinstance(self.model, str):
            named = self.tokenizer if isinstance(self.tokenizer, str) else None
            ModelSource(self.model, named).check_path()
        options = self._load_options()
        if self._is_named() and set(options) <= _ENGINE_OPTIONS:
            return Engine.from_pretrained(
                self.model,
                tokenizer=None if self.tokenizer == self.model else self.tokenizer,
                device_map=self.device_map,
                config=self.config,
                **options,
            )
        return Engine.of(self._loaded_model(options), self._loaded_tokenizer(), self.config)

    def _is_named(self) -> bool:
        named = isinstance(self.model, str) and isinstance(self.tokenizer, str | None)
        return named and not self.tokenizer_kwargs

    def _load_options(self) -> dict[str, Any]:
        options = {name: value for name, value in self.model_kwargs.items() if value is not None}
        if "torch_dtype" in options:  # the name of older transformers versions
            options.setdefault("dtype", options.pop("torch_dtype"))
        if "dtype" in options:
            options["dtype"] = str(options["dtype"]).removeprefix("torch.")
        return options

    def _loaded_model(self, options: Mapping[str, Any]) -> Any:
        if not isinstance(self.model, str):
            return self.model
        from transformers import AutoModelForCausalLM

        options = {"dtype": "auto", **options}
        return AutoModelForCausalLM.from_pretrained(
            self.model, device_map=self.device_map, **options
        )

    def _loaded_tokenizer(self) -> Any:
        if not isinstance(self.tokenizer, str | None):
            return self.tokenizer
        from transformers import AutoTokenizer

        own = self.model
        if not isinstance(own, str):
            own = getattr(own, "name_or_path", "")
        if not (self.tokenizer or own):
            raise ConfigError("a loaded model without a name needs its tokenizer; give tokenizer=")
        options = {**self.tokenizer_kwargs}
        if self.tokenizer is None and "gguf_file" in self.model_kwargs:
            options.setdefault("gguf_file", self.model_kwargs["gguf_file"])
        return AutoTokenizer.from_pretrained(self.tokenizer or own, **options)

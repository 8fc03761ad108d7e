"""Where an LLM's engine comes from: given, a loaded model, or a checkpoint's name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cachefriendly.config import EngineConfig
from cachefriendly.errors import ConfigError

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine

__all__ = ["Checkpoint", "EngineSource"]

# What `Engine.from_pretrained` takes; anything else is for transformers' own loader.
_ENGINE_OPTIONS: Final = frozenset({"dtype", "gguf_file"})


class EngineSource:
    """Opens the engine when it is first needed, once. Copies are the same source.

    An LLM is copied by LlamaIndex (`deepcopy`, `model_copy`); a copy must not load again.
    """

    def __init__(self, opener: Callable[[], Engine]) -> None:
        self._opener = opener
        self._lock = threading.Lock()
        self._engine: Engine | None = None

    @classmethod
    def given(cls, engine: Any) -> EngineSource:
        """A source of an engine that the caller made."""
        if not callable(getattr(engine, "chat", None)):
            raise ConfigError(f"engine={type(engine).__name__} is no cachefriendly Engine")
        source = cls(lambda: engine)
        source.get()
        return source

    @property
    def opened(self) -> Engine | None:
        return self._engine

    def get(self) -> Engine:
        with self._lock:
            if self._engine is None:
                self._engine = self._opener()
            return self._engine

    def __copy__(self) -> EngineSource:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> EngineSource:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("an engine stays in its process; pickle the LLM's settings instead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The loading arguments of `HuggingFaceLLM`. ``model`` is a loaded model or None."""

    model_name: str
    model: Any = None
    tokenizer: Any = None
    tokenizer_name: str | None = None
    device_map: Any = None
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    tokenizer_kwargs: Mapping[str, Any] = field(default_factory=dict)
    config: EngineConfig = field(default_factory=EngineConfig)

    def open(self) -> Engine:
        """The engine; weights are shared with every engine opened from the same arguments."""
        from cachefriendly.engine.engine import Engine

        options = dict(self.model_kwargs)
        if "torch_dtype" in options:
            options.setdefault("dtype", options.pop("torch_dtype"))
        plain_tokenizer = self.tokenizer is None and not self.tokenizer_kwargs
        if self.model is None and plain_tokenizer and set(options) <= _ENGINE_OPTIONS:
            if "dtype" in options:
                options["dtype"] = str(options["dtype"]).removeprefix("torch.")
            same = self.tokenizer_name in (None, self.model_name)
            return Engine.from_pretrained(
                self.model_name,
                tokenizer=None if same else self.tokenizer_name,
                device_map=self.device_map,
                config=self.config,
                **options,
            )
        model = self.model or self._load_model(options)
        return Engine.of(model, self._load_tokenizer(), self.config)

    def _load_model(self, options: Mapping[str, Any]) -> Any:
        """Quantization and the like: loaded by transformers, then handed over."""
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(
            self.model_name, device_map=self.device_map, **options
        )

    def _load_tokenizer(self) -> Any:
        if self.tokenizer is not None:
            return self.tokenizer
        from transformers import AutoTokenizer

        name = self.tokenizer_name or self.model_name
        return AutoTokenizer.from_pretrained(name, **self.tokenizer_kwargs)

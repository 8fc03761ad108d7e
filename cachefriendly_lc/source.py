"""Where a chat model's engine comes from: given, a loaded pipeline, or a checkpoint's name."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cachefriendly.checkpoint import Checkpoint, check_engine
from cachefriendly.config import EngineConfig
from cachefriendly.errors import ConfigError
from cachefriendly.options import first_given
from cachefriendly_lc.settings import without_output

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine

__all__ = [
    "LOAD_OPTIONS",
    "EngineSource",
    "engine_from",
    "pipeline_options",
    "source_from",
]

LOAD_OPTIONS: Final = frozenset(
    {
        "attn_implementation",
        "cache_dir",
        "device_map",
        "dtype",
        "gguf_file",
        "local_files_only",
        "low_cpu_mem_usage",
        "max_memory",
        "offload_folder",
        "quantization_config",
        "revision",
        "token",
        "tokenizer",
        "torch_dtype",
        "trust_remote_code",
        "use_safetensors",
    }
)
"""What `model_kwargs` may say about loading a checkpoint; the rest of it is generation."""


_NAMES: Final = ("llm", "model", "tokenizer", "engine_config", "model_kwargs")


class EngineSource:
    """What a chat model and all its copies share: an engine, and the arguments it was opened for.

    LangChain copies a model by calling its class with every field of the original, the opened
    engine among them (``configurable_fields``).
    """

    def __init__(self, engine: Engine, names: Mapping[str, Any]) -> None:
        self.engine = engine
        self.names = dict(names)
        self._lock = threading.Lock()
        self._others: dict[str, Engine] = {}

    def other(self, model: str) -> Engine:
        """The engine of another checkpoint that a call names, held as long as this source is."""
        options = {"model": model, "engine_config": self.engine.config}
        with self._lock:
            engine = self._others[model] = engine_from(options)
            return engine

    def __copy__(self) -> EngineSource:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> EngineSource:
        return self

    def __reduce__(self) -> Any:
        """By names. Refused where weights would be copied."""
        for name in ("llm", "tokenizer"):
            if not isinstance(self.names[name], str | None):
                raise TypeError(
                    f"a chat model with {name}= (a loaded object) cannot be pickled; give model= "
                    "(a path or hub id), or build it in the process that uses it"
                )
        return EngineSource, (self.engine, self.names)


def source_from(options: Mapping[str, Any]) -> EngineSource:
    """The source that constructor options name; for a copy, that of the original.

    Raises:
        ConfigError: as `engine_from`.
    """
    names = {name: options.get(name) for name in _NAMES}
    names["model_kwargs"] = _load_options(options)
    known: EngineSource | None = options.get("engine_source")
    if known is None or options.get("engine") is not known.engine:
        return EngineSource(engine_from(options), names)
    changed = {name for name in _NAMES if names[name] != known.names[name]}
    if not changed:
        return known
    dropped = {"engine", "llm"} if "model" in changed and "llm" not in changed else {"engine"}
    rest = {name: value for name, value in options.items() if name not in dropped}
    rest["engine_config"] = first_given(rest.get("engine_config"), known.engine.config)
    return EngineSource(engine_from(rest), names)


def engine_from(options: Mapping[str, Any]) -> Engine:
    """The engine that constructor options name.

    Nothing is loaded yet, except beside a ``tokenizer`` object: it may have been changed, so it
    is used as it is, with its model.

    Raises:
        ConfigError: no source is given, the given one is unusable, or options of an engine or
            for loading meet an engine or a model that exists already.
    """
    load = _load_options(options)
    engine, llm = options.get("engine"), options.get("llm")
    if load and (engine is not None or llm is not None):
        raise ConfigError(f"model_kwargs {min(load)!r} cannot change a loaded model")
    if engine is not None:
        return check_engine(engine, options.get("engine_config"), options.get("tokenizer"))
    model, own_tokenizer = _pipeline_parts(llm) if llm is not None else (options.get("model"), None)
    if model is None:
        raise ConfigError("no model; give engine=, llm= (a HuggingFacePipeline) or model=")
    named = load.pop("tokenizer", None)
    return Checkpoint(
        model=model,
        tokenizer=first_given(options.get("tokenizer"), named, own_tokenizer),
        device_map=load.pop("device_map", None),
        model_kwargs=load,
        config=options.get("engine_config") or EngineConfig(),
    ).open()


def _load_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in (options.get("model_kwargs") or {}).items() if k in LOAD_OPTIONS}


def _pipeline_parts(llm: Any) -> tuple[Any, Any]:
    pipeline = getattr(llm, "pipeline", llm)
    model, tokenizer = getattr(pipeline, "model", None), getattr(pipeline, "tokenizer", None)
    if model is None:
        raise ConfigError(
            f"llm={type(llm).__name__} holds no local pipeline; give a HuggingFacePipeline"
        )
    return model, tokenizer


def pipeline_options(llm: Any) -> dict[str, Any]:
    """Generation parameters of a `HuggingFacePipeline` and of the pipeline in it."""
    if llm is None:
        return {}
    from cachefriendly.compat_transformers import pipeline_settings

    given = getattr(llm, "pipeline_kwargs", None) or {}
    return without_output({**pipeline_settings(getattr(llm, "pipeline", llm)), **given})

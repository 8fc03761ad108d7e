"""Where a chat model's engine comes from: given, a loaded pipeline, or a checkpoint's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from cachefriendly.config import EngineConfig
from cachefriendly.errors import ConfigError

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine

__all__ = ["LOAD_OPTIONS", "engine_from", "pipeline_options"]

LOAD_OPTIONS = ("device_map", "dtype", "gguf_file", "tokenizer", "torch_dtype")
"""What `model_kwargs` may say about loading a checkpoint; the rest of it is generation."""


def engine_from(options: Mapping[str, Any]) -> Engine:
    """The engine that constructor options name. Nothing is loaded yet.

    Raises:
        ConfigError: no source is given, the given one is unusable, or load options meet a
            model that is loaded already.
    """
    load = {k: v for k, v in (options.get("model_kwargs") or {}).items() if k in LOAD_OPTIONS}
    engine, llm, model = options.get("engine"), options.get("llm"), options.get("model")
    tokenizer, config = options.get("tokenizer"), options.get("engine_config")
    if load and (engine is not None or llm is not None):
        raise ConfigError(f"model_kwargs {sorted(load)[0]!r} cannot change a loaded model")
    if engine is not None:
        return _checked(engine)
    if llm is not None:
        return _from_pipeline(llm, tokenizer, config)
    if model is None:
        raise ConfigError("no model; give engine=, llm= (a HuggingFacePipeline) or model=")
    if tokenizer is not None:
        load["tokenizer"] = getattr(tokenizer, "name_or_path", tokenizer)
    return _from_checkpoint(str(model), load, config)


def _checked(engine: Any) -> Engine:
    if not callable(getattr(engine, "chat", None)):
        raise ConfigError(f"engine={type(engine).__name__} is no cachefriendly Engine")
    return cast("Engine", engine)


def _from_pipeline(llm: Any, tokenizer: Any, config: EngineConfig | None) -> Engine:
    pipeline = getattr(llm, "pipeline", llm)
    model = getattr(pipeline, "model", None)
    tokenizer = tokenizer or getattr(pipeline, "tokenizer", None)
    if model is None or tokenizer is None:
        raise ConfigError(
            f"llm={type(llm).__name__} holds no local pipeline; give a HuggingFacePipeline"
        )
    from cachefriendly.engine.engine import Engine

    return Engine.of(model, tokenizer, config or EngineConfig())


def _from_checkpoint(model: str, load: dict[str, Any], config: EngineConfig | None) -> Engine:
    from cachefriendly.engine.engine import Engine

    if "torch_dtype" in load:
        load.setdefault("dtype", load.pop("torch_dtype"))
    if "dtype" in load:
        load["dtype"] = str(load["dtype"]).removeprefix("torch.")
    return Engine.from_pretrained(model, **load, config=config or EngineConfig())


def pipeline_options(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Generation parameters among a pipeline's; what only formats its output is dropped."""
    return {k: v for k, v in (given or {}).items() if k not in ("return_full_text", "skip_prompt")}

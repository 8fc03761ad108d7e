"""Where a chat model's engine comes from: given, a loaded pipeline, or a checkpoint's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cachefriendly.checkpoint import Checkpoint, check_engine
from cachefriendly.config import EngineConfig
from cachefriendly.errors import ConfigError
from cachefriendly.options import first_given

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine

__all__ = ["LOAD_OPTIONS", "engine_from", "pipeline_options"]

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


def engine_from(options: Mapping[str, Any]) -> Engine:
    """The engine that constructor options name.

    Nothing is loaded yet, except beside a ``tokenizer`` object: it may have been changed, so it
    is used as it is, with its model.

    Raises:
        ConfigError: no source is given, the given one is unusable, or load options meet a
            model that is loaded already.
    """
    load = {k: v for k, v in (options.get("model_kwargs") or {}).items() if k in LOAD_OPTIONS}
    engine, llm = options.get("engine"), options.get("llm")
    if load and (engine is not None or llm is not None):
        raise ConfigError(f"model_kwargs {min(load)!r} cannot change a loaded model")
    if engine is not None:
        return check_engine(engine)
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


def _pipeline_parts(llm: Any) -> tuple[Any, Any]:
    pipeline = getattr(llm, "pipeline", llm)
    model, tokenizer = getattr(pipeline, "model", None), getattr(pipeline, "tokenizer", None)
    if model is None:
        raise ConfigError(
            f"llm={type(llm).__name__} holds no local pipeline; give a HuggingFacePipeline"
        )
    return model, tokenizer


def pipeline_options(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Generation parameters among a pipeline's; what only formats its output is dropped."""
    return {k: v for k, v in (given or {}).items() if k not in ("return_full_text", "skip_prompt")}

"""What a local chat model is before it is called: its settings, its engine, its identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self, cast

from pydantic import Field

from cachefriendly.config import EngineConfig, Sampling
from cachefriendly.errors import ConfigError
from cachefriendly.options import GENERATION_NAMES, sampling_from
from cachefriendly_lc.call_forms import ScopedChatModel
from cachefriendly_lc.scope import current_namespace
from cachefriendly_lc.settings import check_timeout, constructor_options, generation_layers
from cachefriendly_lc.source import LOAD_OPTIONS, pipeline_options, source_from

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine

__all__ = ["LocalChatModel"]


class LocalChatModel(ScopedChatModel):
    """Opens or takes an engine and holds the settings of its calls. Copies share the engine."""

    llm: Any = Field(default=None, exclude=True, repr=False)
    engine: Any = Field(default=None, exclude=True, repr=False)
    engine_source: Any = Field(default=None, exclude=True, repr=False)
    """Set by the constructor: what the engine was opened for. Copies share it."""
    engine_config: EngineConfig | None = Field(default=None, exclude=True, repr=False)
    tokenizer: Any = Field(default=None, exclude=True, repr=False)
    """A tokenizer, path or hub id, used instead of the pipeline's or the checkpoint's own."""
    model: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: int | list[int] | None = None
    timeout: float | None = None
    max_retries: int | None = None
    """Accepted for compatibility: a local engine has no transient errors to retry."""
    streaming: bool = False
    generation_kwargs: dict[str, Any] = Field(default_factory=dict)
    model_kwargs: dict[str, Any] = Field(default_factory=dict)
    template_arguments: dict[str, Any] = Field(default_factory=dict)
    cache_namespace: str = ""

    def __init__(self, **options: Any) -> None:
        given = constructor_options(options, type(self).model_fields)
        given["engine_source"] = source = source_from(given)
        given["engine"] = source.engine
        super().__init__(**given)
        self._sampling({})  # refuses unusable settings now, not at the first call
        check_timeout(self.timeout)

    @classmethod
    def from_model_id(
        cls,
        model_id: str,
        task: str | None = None,
        backend: str = "pipeline",
        *,
        device: int | str | None = None,
        device_map: Any = None,
        model_kwargs: Mapping[str, Any] | None = None,
        pipeline_kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """The constructor of `HuggingFacePipeline` and `ChatHuggingFace` in one.

        ``batch_size`` is accepted and has no meaning here: whatever is waiting is batched.
        """
        if task not in (None, "text-generation"):
            raise ConfigError(f"task={task!r} is not supported; use 'text-generation'")
        if backend not in ("pipeline", "default"):
            raise ConfigError(f"backend={backend!r} is not supported; use 'pipeline'")
        options.pop("batch_size", None)
        load = dict(model_kwargs or {})
        placement = device_map if device_map is not None else _device_map(device)
        if placement is not None:
            load["device_map"] = placement
        settings = {**(pipeline_kwargs or {}), **options.pop("generation_kwargs", {})}
        return cls(model=model_id, model_kwargs=load, generation_kwargs=settings, **options)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        memo = {} if memo is None else memo
        memo.update({id(shared): shared for shared in (self.engine, self.llm, self.tokenizer)})
        return super().__deepcopy__(memo)

    def __getstate__(self) -> dict[Any, Any]:
        """For pickle: by name. `TypeError` where it would copy weights."""
        self.engine_source.__reduce__()
        return super().__getstate__()

    @property
    def model_name(self) -> str:
        return self.model or str(self.engine.model_name)

    @property
    def model_id(self) -> str:
        return self.model_name

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        """Enters the key of LangChain's reply cache: whatever may change a reply, and isolation."""
        config = self.engine.config
        return {
            "model_name": self.model_name,
            "cache_namespace": self._namespace({}),
            **asdict(self._sampling({})),
            "model_kwargs": self.model_kwargs,
            "template": getattr(self.tokenizer, "chat_template", None),
            "template_arguments": self.template_arguments,
            "prompts": (config.history, config.overflow, config.context_window, config.clock),
        }

    # What a call uses of it

    def _engine(self, model: str | None) -> Engine:
        """The engine for a per-call ``model``; equal checkpoints share one."""
        if model is None or model in (self.model, self.engine.model_name):
            return cast("Engine", self.engine)
        return cast("Engine", self.engine_source.other(model))

    def _sampling(self, options: Mapping[str, Any]) -> Sampling:
        """The pipeline's settings, then the model's own, then those of the call."""
        pipeline = pipeline_options(self.llm)
        extra = {k: v for k, v in self.model_kwargs.items() if k not in LOAD_OPTIONS}
        own = {name: getattr(self, name) for name in GENERATION_NAMES}
        return sampling_from(
            pipeline, extra, self.generation_kwargs, own, *generation_layers(options)
        )

    def _namespace(self, options: Mapping[str, Any]) -> str:
        """The call's, else the config's, else the model's."""
        call = options.get("cache_namespace")
        return current_namespace(self.cache_namespace) if call is None else str(call)


def _device_map(device: int | str | None) -> str | None:
    """`HuggingFacePipeline`'s ``device``: -1 is the CPU, n is the n-th accelerator."""
    if device is None:
        return None
    if isinstance(device, int):
        return "cpu" if device == -1 else f"cuda:{device}"
    return str(device)

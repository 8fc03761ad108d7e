"""`ChatCacheFriendly`: a LangChain chat model on an engine that keeps its keys and values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput, ModelProfile
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import Field

from cachefriendly.config import EngineConfig, Sampling
from cachefriendly.errors import ConfigError, RequestError
from cachefriendly.openai_forms import parse_tool_choice, tool_choice_to_openai, tool_from_openai
from cachefriendly.options import GENERATION_NAMES, first_given, sampling_from
from cachefriendly.request import ChatRequest
from cachefriendly_lc.call_forms import ScopedChatModel
from cachefriendly_lc.calls import PreparedCall
from cachefriendly_lc.convert import (
    PROVIDER,
    message_from_langchain,
    messages_from_langchain,
)
from cachefriendly_lc.errors import as_langchain
from cachefriendly_lc.profile import profile_of
from cachefriendly_lc.scope import current_namespace, current_scope
from cachefriendly_lc.settings import (
    TRACING_OPTIONS,
    check_call,
    check_timeout,
    constructor_options,
    generation_layers,
)
from cachefriendly_lc.source import LOAD_OPTIONS, pipeline_options, source_from
from cachefriendly_lc.structured import StructuredMethod, structured_model
from cachefriendly_lc.tools import ToolLike, openai_tools, response_schema

if TYPE_CHECKING:
    from cachefriendly.engine.call import Call
    from cachefriendly.engine.engine import Engine

__all__ = ["ChatCacheFriendly", "ChatHuggingFace"]


class ChatCacheFriendly(ScopedChatModel):
    """A chat model whose every call forwards only the tokens that are new.

    Takes ``engine=`` (an `Engine`), ``llm=`` (a loaded `HuggingFacePipeline`) or ``model=`` (a
    checkpoint's path or hub id, loaded on first use). Copies share the engine.
    """

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
    ) -> ChatCacheFriendly:
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

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> ChatCacheFriendly:
        memo = {} if memo is None else memo
        memo.update({id(shared): shared for shared in (self.engine, self.llm, self.tokenizer)})
        return super().__deepcopy__(memo)

    def __getstate__(self) -> dict[Any, Any]:
        """For pickle: by name. `TypeError` where it would copy weights."""
        self.engine_source.__reduce__()
        return super().__getstate__()

    # What the model says about itself

    @property
    def _llm_type(self) -> str:
        return PROVIDER

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

    def _resolve_model_profile(self) -> ModelProfile | None:
        return profile_of(self.engine)

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = PROVIDER
        params.setdefault("ls_model_name", self.model_name)
        return params

    def get_token_ids(self, text: str) -> list[int]:
        if self.custom_get_token_ids is not None:
            return self.custom_get_token_ids(text)
        return list(self.engine.token_ids(text))

    def get_num_tokens_from_messages(
        self, messages: list[BaseMessage], tools: Sequence[ToolLike] | None = None
    ) -> int:
        """The prompt tokens of a call with these messages and tools, to the token.

        ``trim_messages`` counts lists that are no conversation (empty, or beginning with a tool
        result): those are counted message by message, as text.
        """
        try:
            call = self._prepare(messages, None, {"tools": tools or ()})
            return int(call.engine.count_message_tokens(call.request))
        except RequestError:
            plain = (message_from_langchain(m, index=i) for i, m in enumerate(messages))
            return sum(self.engine.count_tokens(message.content) for message in plain)

    def prefill(self, messages: Sequence[BaseMessage], *, tools: Sequence[ToolLike] = ()) -> Call:
        """Forward a history in the background and keep it; the next call reuses what it shares."""
        call = self._prepare(list(messages), None, {"tools": tools})
        return call.engine.prefill(call.request)

    # From a call's arguments to the request: the one path of every call form

    def _prepare(
        self, messages: list[BaseMessage], stop: list[str] | None, kwargs: Mapping[str, Any]
    ) -> PreparedCall:
        options = check_call({**kwargs, **({"stop": stop} if stop is not None else {})})
        engine = self._engine(options.get("model"))
        tools = openai_tools(options.get("tools") or ())
        request = ChatRequest(
            messages=messages_from_langchain(messages),
            tools=tuple(tool_from_openai(tool) for tool in tools),
            tool_choice=parse_tool_choice(options.get("tool_choice"), _names(tools)),
            response_schema=response_schema(options.get("response_format")),
            sampling=self._sampling(options),
            namespace=self._namespace(options),
            session=current_scope().session,
            template_arguments=first_given(
                options.get("template_arguments"), self.template_arguments
            ),
        )
        return PreparedCall(
            engine,
            request,
            model_name=options.get("model") or self.model_name,
            timeout=check_timeout(options.get("timeout", self.timeout)),
            source=messages,
        )

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

    # The call forms of BaseChatModel

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with as_langchain():
            return _chat_result(self._prepare(messages, stop, kwargs).reply())

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with as_langchain():
            return _chat_result(await self._prepare(messages, stop, kwargs).areply())

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        with as_langchain(), closing(self._prepare(messages, stop, kwargs).chunks()) as chunks:
            for message in chunks:
                chunk = ChatGenerationChunk(message=message)
                if run_manager:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        with as_langchain():
            async with aclosing(self._prepare(messages, stop, kwargs).achunks()) as chunks:
                async for message in chunks:
                    chunk = ChatGenerationChunk(message=message)
                    if run_manager:
                        await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                    yield chunk

    # Tools and structured output

    def bind_tools(
        self,
        tools: Sequence[ToolLike],
        *,
        tool_choice: Any = None,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Offer tools; a ``tool_choice`` that forces a call is always obeyed.

        The prompt states tools sorted by name, in the given order only with ``history="exact"``.
        """
        check_call({name: kwargs[name] for name in kwargs if name not in TRACING_OPTIONS})
        converted = openai_tools(tools, strict=strict)
        choice = parse_tool_choice(tool_choice, _names(converted))
        if choice != "auto":
            kwargs["tool_choice"] = tool_choice_to_openai(choice)
        return self.bind(tools=converted, **kwargs)

    def with_structured_output(
        self,
        schema: dict[str, Any] | type | None = None,
        *,
        method: StructuredMethod = "json_schema",
        include_raw: bool = False,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """Answers in the form of ``schema``, held to it by a grammar whatever the method."""
        model = structured_model(self, schema, method, strict=strict, options=check_call(kwargs))
        return model.with_raw() if include_raw else model.parsed()


ChatHuggingFace = ChatCacheFriendly


def _device_map(device: int | str | None) -> str | None:
    """`HuggingFacePipeline`'s ``device``: -1 is the CPU, n is the n-th accelerator."""
    if device is None:
        return None
    if isinstance(device, int):
        return "cpu" if device == -1 else f"cuda:{device}"
    return str(device)


def _names(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


def _chat_result(message: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])

"""`CacheFriendlyLLM`: LlamaIndex's `HuggingFaceLLM` as a function calling LLM on live KV."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.constants import DEFAULT_NUM_OUTPUTS
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback

from cachefriendly.checkpoint import Checkpoint, check_engine
from cachefriendly.config import EngineConfig, Sampling
from cachefriendly.openai_forms import parse_tool_choice
from cachefriendly.options import first_given, sampling_from
from cachefriendly.request import ChatRequest
from cachefriendly_li.callbacks import async_stream_callback, stream_callback
from cachefriendly_li.convert import (
    messages_from_llama_index,
    to_chat_response,
    to_completion_response,
)
from cachefriendly_li.metadata import EngineMetadata
from cachefriendly_li.options import field_values, name_of, refuse_loading, split_call
from cachefriendly_li.source import EngineSource
from cachefriendly_li.stream import (
    achat_chunks,
    acompletion_chunks,
    chat_chunks,
    completion_chunks,
)
from cachefriendly_li.structured import StructuredStreams
from cachefriendly_li.tools import tools_from_llama_index

if TYPE_CHECKING:
    from cachefriendly.engine.call import Call
    from cachefriendly.engine.engine import Engine
    from cachefriendly.events import CacheReport

__all__ = ["CacheFriendlyLLM", "HuggingFaceLLM"]

_log = logging.getLogger(__name__)


class CacheFriendlyLLM(StructuredStreams):
    """An LLM that forwards only the tokens that are new.

    Takes ``engine=``, or the arguments of `HuggingFaceLLM`; constructing loads nothing. Prompts
    are built by the model's chat template, so `complete` sends its prompt as one user message,
    with ``formatted=True`` too. ``generate_kwargs`` and the keyword arguments of a call hold any
    field of transformers' `GenerationConfig`.

    A call may further say ``session_id``, ``cache_namespace``, ``tools``, ``tool_choice``,
    ``tool_required``, ``allow_parallel_tool_calls`` (False: the reply ends behind its first call;
    True: a required one may be several), ``response_schema`` (the whole reply is JSON of that
    schema), ``template_arguments`` and ``raw_text`` (chunks of a stream hold what was just
    generated, calls included, in ``additional_kwargs["cachefriendly_raw_delta"]``).
    """

    model_name: str = Field(description="Hub id or path; the name in reports.")
    context_window: int | None = Field(
        default=None,
        gt=0,
        description="Tokens LlamaIndex plans with, at most the model's own; None: as many. "
        "The limit of a call is the engine's.",
    )
    max_new_tokens: int = Field(
        default=DEFAULT_NUM_OUTPUTS, gt=0, description="New tokens per call."
    )
    tokenizer_name: str | None = Field(default=None, description="None: the model's own.")
    device_map: Any = Field(default="auto", description="As in transformers.")
    stopping_ids: list[int] = Field(default_factory=list, description="Further stop tokens.")
    tokenizer_kwargs: dict[str, Any] = Field(default_factory=dict)
    model_kwargs: dict[str, Any] = Field(default_factory=dict)
    generate_kwargs: dict[str, Any] = Field(default_factory=dict)
    is_chat_model: bool = Field(default=True)
    session_id: str | None = Field(default=None, description="Affinity hint of every call.")
    cache_namespace: str = Field(default="", description="Nothing is shared across namespaces.")

    _source: EngineSource = PrivateAttr()
    _told: bool = PrivateAttr(default=False)  # that the context window is the model's

    def __init__(
        self,
        model_name: str | None = None,
        *,
        engine: Engine | None = None,
        model: Any = None,
        tokenizer: Any = None,
        engine_config: EngineConfig | None = None,
        **options: Any,
    ) -> None:
        values = field_values(type(self).model_fields, options)
        if engine is not None:
            refuse_loading({**values, "model": model})
            check_engine(engine, engine_config, tokenizer)
        super().__init__(**{**values, "model_name": name_of(model_name, model, engine)})
        self._sampling()  # refuses unusable settings now, not at the first call
        if engine is not None:
            self._source = EngineSource.given(engine)
            return
        loaded = None if isinstance(model, str) else model
        checkpoint = Checkpoint(
            model=first_given(loaded, self.model_name),
            tokenizer=first_given(
                tokenizer, self.tokenizer_name, None if loaded is None else model_name
            ),
            device_map=self.device_map,
            model_kwargs=self.model_kwargs,
            tokenizer_kwargs=self.tokenizer_kwargs,
            config=engine_config or EngineConfig(),
        )
        self._source = EngineSource.of(checkpoint)

    def __getstate__(self) -> dict[str, Any]:
        """Names and settings.

        Raises:
            TypeError: the LLM was built over loaded objects, whose weights are not copied.
        """
        # LlamaIndex leaves out what cannot be pickled, and makes of the rest what it can.
        self._source.__reduce__()
        return super().__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._source = state["__pydantic_private__"]["_source"]

    @classmethod
    def class_name(cls) -> str:
        return "CacheFriendlyLLM"

    @property
    def engine(self) -> Engine:
        """The engine; opened at the first use."""
        return self._source.get()

    @property
    def closed(self) -> bool:
        """Whether the engine was opened, and closed again."""
        engine = self._source.opened
        return engine is not None and engine.closed

    @property
    def metadata(self) -> LLMMetadata:
        """Its context window is read from the checkpoint's configuration when it is asked for;
        that loads weights only beside a ``tokenizer`` object."""
        return EngineMetadata.of(
            self._window,
            num_output=self._sampling().max_tokens or self.max_new_tokens,
            is_chat_model=self.is_chat_model,
            is_function_calling_model=True,
            model_name=self.model_name,
        )

    def _window(self) -> int:
        window = self.engine.context_window
        if (self.context_window or 0) > window and not self._told:
            self._told = True
            _log.warning(
                "context_window=%d is more than the %d tokens of %r, which hold; leave it out",
                self.context_window,
                window,
                self.model_name,
            )
        return min(window, self.context_window or window)

    def to_payload(self) -> dict[str, Any]:
        """What events say about this LLM. Asked in the event loop, so it reads no file."""
        return {
            "class_name": self.class_name(),
            "model_name": self.model_name,
            "num_output": self.max_new_tokens,
            "is_chat_model": self.is_chat_model,
            "is_function_calling_model": True,
        }

    def tokenize(self, text: str) -> list[int]:
        """Ids of a text, as a ``tokenizer_fn`` for whatever in LlamaIndex counts tokens."""
        return self.engine.token_ids(text)

    # -- chat ---------------------------------------------------------------------------------

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        with self._start(messages, kwargs) as call:
            return to_chat_response(call.result(), self.model_name)

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        with await self._astart(messages, kwargs) as call:
            return to_chat_response(await call.aresult(), self.model_name)

    @stream_callback(llm_chat_callback)
    def stream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> Generator[ChatResponse, None, None]:
        return chat_chunks(self._start(messages, kwargs), self.model_name)

    @async_stream_callback(llm_chat_callback)
    async def astream_chat(
        self, messages: Sequence[ChatMessage], **kwargs: Any
    ) -> AsyncGenerator[ChatResponse, None]:
        return achat_chunks(await self._astart(messages, kwargs), self.model_name)

    # -- work ahead ---------------------------------------------------------------------------

    def prefill(
        self,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[Any] = (),
        awaiting: Collection[str] = (),
        **kwargs: Any,
    ) -> CacheReport | None:
        """Forward a history and keep it: what the next call would otherwise start with.

        For the time while a tool runs. Nothing is generated, and no event is sent.

        Args:
            awaiting: ids of calls of the last assistant message that have no result yet, in the
                order in which their results will stand. What follows whatever they return is
                forwarded, too.
            kwargs: those of the call to come: ``session_id``, ``cache_namespace`` and so on.

        Returns:
            What it cost; None for an engine that keeps nothing (``reuse=False``).
        """
        call = self._start_prefill(messages, {**kwargs, "tools": tools}, awaiting)
        if call is None:
            return None
        with call:
            return call.result().report

    async def aprefill(
        self,
        messages: Sequence[ChatMessage],
        *,
        tools: Sequence[Any] = (),
        awaiting: Collection[str] = (),
        **kwargs: Any,
    ) -> CacheReport | None:
        """`prefill` beside a running event loop; cancelling it cancels the work."""
        options = {**kwargs, "tools": tools}
        call = await asyncio.to_thread(self._start_prefill, messages, options, awaiting)
        if call is None:
            return None
        with call:
            return (await call.aresult()).report

    # -- complete -----------------------------------------------------------------------------

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        with self._start(self._prompt_messages(prompt, formatted), kwargs) as call:
            return to_completion_response(to_chat_response(call.result(), self.model_name))

    @llm_completion_callback()
    async def acomplete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponse:
        with await self._astart(self._prompt_messages(prompt, formatted), kwargs) as call:
            return to_completion_response(to_chat_response(await call.aresult(), self.model_name))

    @stream_callback(llm_completion_callback)
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> Generator[CompletionResponse, None, None]:
        call = self._start(self._prompt_messages(prompt, formatted), kwargs)
        return completion_chunks(chat_chunks(call, self.model_name))

    @async_stream_callback(llm_completion_callback)
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> AsyncGenerator[CompletionResponse, None]:
        call = await self._astart(self._prompt_messages(prompt, formatted), kwargs)
        return acompletion_chunks(achat_chunks(call, self.model_name))

    def _prompt_messages(self, prompt: str, formatted: bool) -> list[ChatMessage]:
        if formatted:
            return [ChatMessage(role=MessageRole.USER, content=prompt)]
        if self.query_wrapper_prompt is not None:
            prompt = self.query_wrapper_prompt.format(query_str=prompt)
        return self._extend_messages([ChatMessage(role=MessageRole.USER, content=prompt)])

    # -- the one request path -----------------------------------------------------------------

    def _start(self, messages: Sequence[ChatMessage], kwargs: Mapping[str, Any]) -> Call:
        return self.engine.chat(self._request(messages, kwargs))

    async def _astart(self, messages: Sequence[ChatMessage], kwargs: Mapping[str, Any]) -> Call:
        # Building the prompt takes milliseconds, and the first call opens the engine.
        return await asyncio.to_thread(self._start, messages, kwargs)

    def _start_prefill(
        self, messages: Sequence[ChatMessage], kwargs: Mapping[str, Any], awaiting: Collection[str]
    ) -> Call | None:
        engine = self.engine
        if not engine.config.reuse:
            return None
        return engine.prefill(self._request(messages, kwargs), awaiting=awaiting)

    def _sampling(self, *layers: Mapping[str, Any]) -> Sampling:
        """The LLM's own settings, then those of a call."""
        own = {"max_new_tokens": self.max_new_tokens, "stopping_ids": self.stopping_ids}
        return sampling_from(own, self.generate_kwargs, *layers)

    def _request(self, messages: Sequence[ChatMessage], kwargs: Mapping[str, Any]) -> ChatRequest:
        call, generation = split_call(kwargs)
        tools = tools_from_llama_index(call.get("tools"))
        choice = first_given(call.get("tool_choice"), bool(call.get("tool_required")))
        return ChatRequest(
            messages=messages_from_llama_index(messages),
            tools=tools,
            tool_choice=parse_tool_choice(choice, [tool.name for tool in tools]),
            response_schema=call.get("response_schema"),
            sampling=self._sampling(*generation),
            namespace=first_given(call.get("cache_namespace"), self.cache_namespace),
            session=first_given(call.get("session_id"), self.session_id),
            template_arguments=call.get("template_arguments") or {},
            parallel_tool_calls=call.get("allow_parallel_tool_calls"),
            raw_text=bool(call.get("raw_text")),
        )


HuggingFaceLLM = CacheFriendlyLLM
"""The name of the class that `CacheFriendlyLLM` replaces."""

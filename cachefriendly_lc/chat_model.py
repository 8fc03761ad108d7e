"""`ChatCacheFriendly`: a LangChain chat model on an engine that keeps its keys and values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput, ModelProfile
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable

from cachefriendly.errors import RequestError
from cachefriendly.openai_forms import parse_tool_choice, tool_choice_to_openai, tool_from_openai
from cachefriendly.options import first_given
from cachefriendly.request import ChatRequest
from cachefriendly_lc.calls import PreparedCall
from cachefriendly_lc.convert import message_from_langchain, messages_from_langchain
from cachefriendly_lc.errors import as_langchain
from cachefriendly_lc.local_model import LocalChatModel
from cachefriendly_lc.profile import profile_of
from cachefriendly_lc.replies import PROVIDER
from cachefriendly_lc.scope import current_scope
from cachefriendly_lc.settings import (
    TRACING_OPTIONS,
    check_call,
    check_timeout,
)
from cachefriendly_lc.structured import StructuredMethod, structured_model
from cachefriendly_lc.tools import ToolLike, openai_tools, response_schema

if TYPE_CHECKING:
    from cachefriendly.engine.call import Call

__all__ = ["ChatCacheFriendly", "ChatHuggingFace"]


class ChatCacheFriendly(LocalChatModel):
    """A chat model whose every call forwards only the tokens that are new.

    Takes ``engine=`` (an `Engine`), ``llm=`` (a loaded `HuggingFacePipeline`) or ``model=`` (a
    checkpoint's path or hub id, loaded on first use). Copies share the engine.
    """

    # What the model says about itself

    @property
    def _llm_type(self) -> str:
        return PROVIDER

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
            parallel_tool_calls=options.get("parallel_tool_calls"),
        )
        return PreparedCall(
            engine,
            request,
            model_name=options.get("model") or self.model_name,
            timeout=check_timeout(options.get("timeout", self.timeout)),
            source=messages,
        )

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


def _names(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


def _chat_result(message: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])

"""The public call forms of a chat model, each carrying its config to the request builder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from typing import Any
from uuid import uuid4

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import get_config_list
from langchain_core.utils.utils import LC_ID_PREFIX

from cachefriendly_lc.scope import aiterate_in, current_scope, entered, iterate_in, scope_of

__all__ = ["ScopedChatModel"]

_STREAM_SCOPE = "_cachefriendly_scope"


class ScopedChatModel(BaseChatModel):
    """`BaseChatModel` that honours ``config["configurable"]`` on direct calls too."""

    def invoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        with entered(scope_of(config)):
            return super().invoke(input, config, **kwargs)

    async def ainvoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        with entered(scope_of(config)):
            return await super().ainvoke(input, config, **kwargs)

    def stream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[AIMessageChunk]:
        with closing(super().stream(input, config, **kwargs)) as chunks:  # type: ignore[type-var]
            yield from iterate_in(scope_of(config), chunks)

    async def astream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[AIMessageChunk]:
        async with aclosing(super().astream(input, config, **kwargs)) as chunks:  # type: ignore[type-var]
            async for chunk in aiterate_in(scope_of(config), chunks):
                yield chunk

    def batch(
        self,
        inputs: list[LanguageModelInput],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """One thread per input: the engine runs what is waiting in one forward."""
        configs = get_config_list(config, len(inputs))
        wide: list[RunnableConfig] = [{"max_concurrency": len(inputs), **c} for c in configs]
        return super().batch(inputs, wide, **kwargs)

    def _convert_cached_generations(self, cache_val: list[Generation]) -> list[ChatGeneration]:
        """Replies out of LangChain's reply cache (``set_llm_cache``): those of the first call.

        With ids of their own, because two messages of one id are one in a thread: the later one
        would take the place of the earlier. Without the note ``total_cost``, which the next
        prompt's key would contain, so that a repeated conversation would leave the cache at once.
        """
        return [_new_reply(reply) for reply in super()._convert_cached_generations(cache_val)]

    # Event streams (version "v3") start outside any call form; the stream object carries the scope.

    def _chat_model_stream_v3(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Any:
        stream = super()._chat_model_stream_v3(input, config, **kwargs)
        setattr(stream, _STREAM_SCOPE, scope_of(config))
        return stream

    async def _achat_model_stream_v3(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Any:
        stream = await super()._achat_model_stream_v3(input, config, **kwargs)
        setattr(stream, _STREAM_SCOPE, scope_of(config))
        return stream

    def _iter_v2_events(self, *args: Any, stream: Any, **kwargs: Any) -> Iterator[Any]:
        scope = getattr(stream, _STREAM_SCOPE, None) or current_scope()
        return iterate_in(scope, super()._iter_v2_events(*args, stream=stream, **kwargs))

    def _aiter_v2_events(self, *args: Any, stream: Any, **kwargs: Any) -> AsyncIterator[Any]:
        scope = getattr(stream, _STREAM_SCOPE, None) or current_scope()
        return aiterate_in(scope, super()._aiter_v2_events(*args, stream=stream, **kwargs))


def _new_reply(cached: ChatGeneration) -> ChatGeneration:
    usage: Any = getattr(cached.message, "usage_metadata", None) or {}
    kept = {name: value for name, value in usage.items() if name != "total_cost"}
    fields = {"id": f"{LC_ID_PREFIX}-{uuid4()}", "usage_metadata": kept or None}
    return cached.model_copy(update={"message": cached.message.model_copy(update=fields)})

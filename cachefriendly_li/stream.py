"""A call's events as LlamaIndex chunks: each carries the whole message so far."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from llama_index.core.base.llms.types import ChatResponse, CompletionResponse

from cachefriendly.events import ChatEvent, Finished, RawDelta, ReasoningDelta, TextDelta
from cachefriendly.messages import ToolCall
from cachefriendly_li.convert import (
    assistant_message,
    to_chat_response,
    to_completion_response,
)

if TYPE_CHECKING:
    from cachefriendly.engine.call import Call

__all__ = ["RAW_DELTA", "achat_chunks", "acompletion_chunks", "chat_chunks", "completion_chunks"]

RAW_DELTA: Final = "cachefriendly_raw_delta"
"""Where a chunk has the text that was just generated, of a call with ``raw_text=True``."""

_Chats: TypeAlias = Generator[ChatResponse, None, None]
_AsyncChats: TypeAlias = AsyncGenerator[ChatResponse, None]


def chat_chunks(call: Call, model_name: str) -> _Chats:
    """Closing it early cancels the call."""
    writer = _ChunkWriter(model_name)
    with call, closing(iter(call)) as events:
        for event in events:
            yield writer.write(event)


async def achat_chunks(call: Call, model_name: str) -> _AsyncChats:
    writer = _ChunkWriter(model_name)
    with call:
        async with aclosing(aiter(call)) as events:
            async for event in events:
                yield writer.write(event)


def completion_chunks(chunks: _Chats) -> Generator[CompletionResponse, None, None]:
    with closing(chunks):
        for chunk in chunks:
            yield to_completion_response(chunk)


async def acompletion_chunks(chunks: _AsyncChats) -> AsyncGenerator[CompletionResponse, None]:
    async with aclosing(chunks):
        async for chunk in chunks:
            yield to_completion_response(chunk)


class _ChunkWriter:
    """Owns the message of one stream while it grows.

    Agents read tool calls from every chunk and store the last one, so only whole calls enter a
    message and the last chunk holds everything: blocks, handle and usage.
    """

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name
        self._text = ""
        self._reasoning: str | None = None
        self._calls: list[ToolCall] = []

    def write(self, event: ChatEvent) -> ChatResponse:
        if isinstance(event, Finished):
            return to_chat_response(event.result, self._model_name, delta="")
        delta: str = ""
        extras: dict[str, Any] = {}
        if isinstance(event, TextDelta):
            delta = event.text
            self._text += delta
        elif isinstance(event, ReasoningDelta):
            extras = {"thinking_delta": event.text}
            self._reasoning = (self._reasoning or "") + event.text
        elif isinstance(event, RawDelta):
            extras = {RAW_DELTA: event.text}
        else:
            self._calls.append(event.call)
        message = assistant_message(self._text, self._reasoning, self._calls)
        return ChatResponse(message=message, delta=delta, additional_kwargs=extras)

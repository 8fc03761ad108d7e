"""A call's events as LlamaIndex chunks: each carries the whole message so far."""

from __future__ import annotations

from llama_index.core.base.llms.types import ChatResponse

from cachefriendly.events import ChatEvent, Finished, ReasoningDelta, TextDelta
from cachefriendly.messages import ToolCall
from cachefriendly_li.convert import assistant_message, to_chat_response

__all__ = ["ChunkWriter"]


class ChunkWriter:
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
        delta, extras = "", {}
        if isinstance(event, TextDelta):
            delta = event.text
            self._text += delta
        elif isinstance(event, ReasoningDelta):
            extras = {"thinking_delta": event.text}
            self._reasoning = (self._reasoning or "") + event.text
        else:
            self._calls.append(event.call)
        message = assistant_message(self._text, self._reasoning, self._calls)
        return ChatResponse(message=message, delta=delta, additional_kwargs=extras)

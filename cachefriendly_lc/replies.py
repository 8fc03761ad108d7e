"""The engine's results and events as LangChain's replies: messages, stream chunks, usage."""

from __future__ import annotations

import json
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call_chunk

from cachefriendly.events import (
    CacheReport,
    ChatResult,
    ReasoningDelta,
    TextDelta,
    ToolCallReady,
)
from cachefriendly.messages import HANDLE_KEY
from cachefriendly_lc.convert import ai_message, reasoning_kwargs, unparsable

__all__ = [
    "PROVIDER",
    "chunk_from_event",
    "closing_chunks",
    "message_from_result",
    "usage_from_report",
]

PROVIDER = "cachefriendly"

# LangChain joins the parts of a stream that have the same place, and numbers text and reasoning
# itself, from 0. Without a place, event streams (v3) join all calls into one.
_CALL_PLACES, _BROKEN_PLACES = 1000, 2000


def message_from_result(result: ChatResult, *, model_name: str) -> AIMessage:
    """The finished reply, with usage and handle."""
    ai = ai_message(result.message, _metadata(result, model_name))
    ai.usage_metadata = usage_from_report(result.report)
    return ai


def _metadata(result: ChatResult, model_name: str) -> dict[str, Any]:
    return {
        "model_name": model_name,
        "model_provider": PROVIDER,
        "finish_reason": result.finish_reason,
    }


def usage_from_report(report: CacheReport) -> UsageMetadata:
    """LangChain's usage: the whole prompt, of which ``cache_read`` was reused."""
    return UsageMetadata(
        input_tokens=report.prompt_tokens,
        output_tokens=report.generated_tokens,
        total_tokens=report.prompt_tokens + report.generated_tokens,
        input_token_details={
            "cache_read": report.reused_tokens,
            "cache_creation": report.prefilled_tokens,
        },
    )


def chunk_from_event(event: TextDelta | ReasoningDelta | ToolCallReady) -> AIMessageChunk:
    """The stream chunk of one event; `closing_chunks` are those that end a stream."""
    if isinstance(event, TextDelta):
        return AIMessageChunk(content=event.text)
    if isinstance(event, ReasoningDelta):
        return AIMessageChunk(content="", additional_kwargs=reasoning_kwargs(event.text))
    call = tool_call_chunk(
        name=event.call.name,
        args=json.dumps(dict(event.call.arguments), ensure_ascii=False),
        id=event.call.id,
        index=_CALL_PLACES + event.index,
    )
    return AIMessageChunk(content="", tool_call_chunks=[call])


def closing_chunks(result: ChatResult, *, model_name: str) -> list[AIMessageChunk]:
    """What ends a stream: broken calls, if any, then the one chunk with usage and metadata.

    Merging chunks adds numbers and concatenates strings, so these may be sent only once. Event
    streams (v3) do not look for calls in the last chunk.
    """
    broken = [
        tool_call_chunk(name=c.name, args=unparsable(c.raw), id=c.id, index=place)
        for place, c in enumerate(result.message.invalid_tool_calls, _BROKEN_PLACES)
    ]
    handle = {HANDLE_KEY: result.message.handle} if result.message.handle else {}
    last = AIMessageChunk(
        content="",
        usage_metadata=usage_from_report(result.report),
        response_metadata={**_metadata(result, model_name), **handle},
        chunk_position="last",
    )
    return [*([AIMessageChunk(content="", tool_call_chunks=broken)] if broken else []), last]

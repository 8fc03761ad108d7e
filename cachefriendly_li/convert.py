"""LlamaIndex messages and responses to the engine's values and back: pure functions.

An assistant message carries its handle in ``additional_kwargs["cachefriendly"]``, malformed calls
in ``additional_kwargs["invalid_tool_calls"]`` and whole calls as `ToolCallBlock`; a system message
the values of its anchors in ``additional_kwargs["cachefriendly_anchors"]``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from llama_index.core.base.llms.types import (
    CachePoint,
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

from cachefriendly.errors import RequestError
from cachefriendly.events import ChatResult
from cachefriendly.messages import (
    ANCHORS_KEY,
    HANDLE_KEY,
    InvalidToolCall,
    Message,
    Role,
    ToolCall,
)

__all__ = [
    "assistant_message",
    "message_from_llama_index",
    "message_to_llama_index",
    "messages_from_llama_index",
    "to_chat_response",
    "to_completion_response",
    "usage",
]

_CALLS_KEY: Final = "tool_calls"
_INVALID_KEY: Final = "invalid_tool_calls"
_ID_KEY: Final = "tool_call_id"
_NAME_KEY: Final = "name"

_ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}


def messages_from_llama_index(messages: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """Convert a conversation.

    Raises:
        RequestError: a role is unknown or a block is not text; names the message and the block.
    """
    return tuple(message_from_llama_index(message, index) for index, message in enumerate(messages))


def message_from_llama_index(message: ChatMessage, index: int = 0) -> Message:
    """Convert one message; ``index`` is its place in the conversation, for error texts."""
    if not isinstance(message, ChatMessage):
        raise RequestError(
            f"message {index}: a {type(message).__name__} is no ChatMessage; "
            "give ChatMessage(role='user', content=...)"
        )
    role = _role(message, index)
    texts, thoughts, calls = _split_blocks(message, role, index)
    extras = message.additional_kwargs
    valid, invalid = _parse_calls(calls or _openai_calls(role, extras))
    return Message(
        role=role,
        content="\n".join(texts),
        tool_calls=valid,
        invalid_tool_calls=(*invalid, *_stored_invalid(role, extras)),
        tool_call_id=_text(extras.get(_ID_KEY)) if role == "tool" else None,
        name=_text(extras.get(_NAME_KEY)),
        reasoning="".join(thoughts) if thoughts else None,
        handle=_text(extras.get(HANDLE_KEY)) if role == "assistant" else None,
        anchors=(extras.get(ANCHORS_KEY) or {}) if role == "system" else {},
    )


def message_to_llama_index(message: Message) -> ChatMessage:
    """The inverse of `message_from_llama_index`: nothing of a `Message` is lost."""
    extras = {
        _ID_KEY: message.tool_call_id,
        _NAME_KEY: message.name,
        HANDLE_KEY: message.handle,
        ANCHORS_KEY: dict(message.anchors) or None,
        _INVALID_KEY: [_invalid_to_dict(call) for call in message.invalid_tool_calls] or None,
    }
    chat = assistant_message(message.content, message.reasoning, message.tool_calls)
    chat.role = MessageRole(message.role)
    chat.additional_kwargs = {key: value for key, value in extras.items() if value is not None}
    return chat


def assistant_message(
    content: str, reasoning: str | None = None, calls: Sequence[ToolCall] = ()
) -> ChatMessage:
    """Blocks in the order thinking, text, calls; without calls there is always a text block."""
    blocks: list[ThinkingBlock | TextBlock | ToolCallBlock] = []
    if reasoning is not None:
        blocks.append(ThinkingBlock(content=reasoning))
    if content or not calls:
        blocks.append(TextBlock(text=content))
    blocks += [
        ToolCallBlock(tool_call_id=call.id, tool_name=call.name, tool_kwargs=dict(call.arguments))
        for call in calls
    ]
    return ChatMessage(role=MessageRole.ASSISTANT, blocks=blocks)


def to_chat_response(result: ChatResult, model: str, *, delta: str | None = None) -> ChatResponse:
    """The finished reply; ``delta`` is set on the last chunk of a stream."""
    return ChatResponse(
        message=message_to_llama_index(result.message), raw=usage(result, model), delta=delta
    )


def to_completion_response(response: ChatResponse) -> CompletionResponse:
    """The same reply, or chunk of one, as LlamaIndex wants it from ``complete``."""
    handle = response.message.additional_kwargs.get(HANDLE_KEY)
    return CompletionResponse(
        text=response.message.content or "",
        additional_kwargs={HANDLE_KEY: handle} if handle else {},
        raw=response.raw,
        delta=response.delta,
    )


def usage(result: ChatResult, model: str) -> dict[str, Any]:
    """``ChatResponse.raw``: usage in the OpenAI form, the finish reason and the model's name."""
    report = result.report
    return {
        "usage": {
            "prompt_tokens": report.prompt_tokens,
            "completion_tokens": report.generated_tokens,
            "total_tokens": report.prompt_tokens + report.generated_tokens,
            "prompt_tokens_details": {"cached_tokens": report.reused_tokens},
        },
        "finish_reason": result.finish_reason,
        "model": model,
    }


def _role(message: ChatMessage, index: int) -> Role:
    name = getattr(message.role, "value", message.role)
    if name not in _ROLES:
        raise RequestError(
            f"message {index}: unknown role {name!r}; use one of {', '.join(sorted(_ROLES))}"
        )
    return _ROLES[name]


def _split_blocks(
    message: ChatMessage, role: Role, index: int
) -> tuple[list[str], list[str], list[ToolCallBlock]]:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCallBlock] = []
    for position, block in enumerate(message.blocks):
        if isinstance(block, TextBlock):
            texts.append(block.text)
        elif isinstance(block, ThinkingBlock) and role == "assistant":
            thoughts.append(block.content or "")
        elif isinstance(block, ToolCallBlock) and role == "assistant":
            calls.append(block)
        elif not isinstance(block, CachePoint):  # a cache point marks a place and holds no content
            raise RequestError(
                f"message {index} ({role}), block {position}: a {block.block_type!r} block cannot "
                "be sent here; this model reads text, and only assistant messages hold "
                "'thinking' and 'tool_call' blocks"
            )
    return texts, thoughts, calls


def _openai_calls(role: Role, extras: Mapping[str, Any]) -> list[ToolCallBlock]:
    """Calls in the OpenAI form, as dicts or as that client's objects; blocks win over them."""
    calls = extras.get(_CALLS_KEY) if role == "assistant" else None
    if not isinstance(calls, list | tuple):
        return []
    blocks = []
    for call in calls:
        function = _get(call, "function")
        blocks.append(
            ToolCallBlock(
                tool_call_id=_text(_get(call, "id")),
                tool_name=str(_get(function, "name")),
                tool_kwargs=_get(function, "arguments") or {},
            )
        )
    return blocks


def _parse_calls(
    blocks: Iterable[ToolCallBlock],
) -> tuple[tuple[ToolCall, ...], tuple[InvalidToolCall, ...]]:
    """Arguments may be JSON text; what is no JSON object stays as data."""
    valid: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    for block in blocks:
        call_id, arguments = block.tool_call_id or "", _arguments(block.tool_kwargs)
        if arguments is None:
            error = "the arguments are not a JSON object"
            raw = str(block.tool_kwargs)
            invalid.append(InvalidToolCall(raw, error, block.tool_name, call_id))
        else:
            valid.append(ToolCall(block.tool_name, arguments, call_id))
    return tuple(valid), tuple(invalid)


def _stored_invalid(role: Role, extras: Mapping[str, Any]) -> tuple[InvalidToolCall, ...]:
    calls = extras.get(_INVALID_KEY) if role == "assistant" else None
    if not isinstance(calls, list | tuple):
        return ()
    return tuple(
        InvalidToolCall(
            raw=str(_get(call, "raw") or ""),
            error=str(_get(call, "error") or ""),
            name=_text(_get(call, "name")),
            id=_text(_get(call, "id")) or "",
        )
        for call in calls
    )


def _invalid_to_dict(call: InvalidToolCall) -> dict[str, Any]:
    return {"raw": call.raw, "error": call.error, "name": call.name, "id": call.id}


def _arguments(value: Mapping[str, Any] | str) -> Mapping[str, Any] | None:
    if not isinstance(value, str):
        return value
    try:
        parsed = json.loads(value) if value.strip() else {}
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None

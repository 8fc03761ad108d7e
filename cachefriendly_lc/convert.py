"""LangChain messages to the engine's messages and back: pure functions.

An `AIMessage` carries its handle in ``response_metadata["cachefriendly"]``, a `SystemMessage` the
values of its anchors in ``additional_kwargs["cachefriendly_anchors"]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages import InvalidToolCall as LCInvalidToolCall
from langchain_core.messages import ToolCall as LCToolCall
from langchain_core.utils.json import parse_partial_json

from cachefriendly.errors import RequestError
from cachefriendly.messages import (
    ANCHORS_KEY,
    HANDLE_KEY,
    InvalidToolCall,
    Message,
    Role,
    ToolCall,
)

__all__ = [
    "ai_message",
    "message_from_langchain",
    "message_to_langchain",
    "messages_from_langchain",
    "reasoning_kwargs",
    "tool_call_to_langchain",
    "unparsable",
]

# A ChatMessage names its role freely; these spellings are in use.
_CHAT_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "tool": "tool",
    "function": "tool",
}
# Frameworks repeat calls as content blocks; `tool_calls` is where they count.
_CALL_BLOCKS = frozenset({"tool_use", "tool_call", "tool_call_chunk", "invalid_tool_call"})
_REASONING_BLOCKS = frozenset({"reasoning", "thinking"})
_TORN = "torn: "
_Content: TypeAlias = str | list[str | dict[str, Any]]


def messages_from_langchain(messages: Sequence[BaseMessage]) -> tuple[Message, ...]:
    """Convert a conversation; `RequestError` names the message that cannot be."""
    if not messages:
        raise RequestError("the message list is empty; send at least one message")
    return tuple(message_from_langchain(m, index=i) for i, m in enumerate(messages))


def message_from_langchain(message: BaseMessage, *, index: int = 0) -> Message:
    """Convert one message; ``index`` is its place in the conversation, for errors."""
    for kind, convert in _CONVERTERS:
        if isinstance(message, kind):
            return convert(message, index)
    raise RequestError(
        f"message {index}: unknown message type {type(message).__name__!r}; use SystemMessage, "
        "HumanMessage, AIMessage or ToolMessage"
    )


def _from_system(message: BaseMessage, index: int) -> Message:
    return Message(
        "system",
        _text(message.content, index),
        name=message.name,
        anchors=message.additional_kwargs.get(ANCHORS_KEY) or {},
    )


def _from_human(message: BaseMessage, index: int) -> Message:
    return Message("user", _text(message.content, index), name=message.name)


def _from_ai(message: BaseMessage, index: int) -> Message:
    ai = cast("AIMessage", message)
    handle = ai.response_metadata.get(HANDLE_KEY)
    return Message(
        "assistant",
        _text(ai.content, index),
        tool_calls=tuple(ToolCall(c["name"], c["args"], c["id"] or "") for c in ai.tool_calls),
        invalid_tool_calls=tuple(_invalid_from_langchain(c) for c in ai.invalid_tool_calls),
        name=ai.name,
        reasoning=_reasoning(ai),
        handle=handle if isinstance(handle, str) else None,
    )


def _from_tool(message: BaseMessage, index: int) -> Message:
    result = cast("ToolMessage", message)
    return Message(
        "tool",
        _text(result.content, index),
        tool_call_id=result.tool_call_id,
        name=result.name,
    )


def _from_function(message: BaseMessage, index: int) -> Message:
    return Message("tool", _text(message.content, index), name=message.name)


def _from_chat(message: BaseMessage, index: int) -> Message:
    role = _CHAT_ROLES.get(cast("ChatMessage", message).role)
    if role is None:
        raise RequestError(
            f"message {index}: unknown role {cast('ChatMessage', message).role!r}; "
            f"use one of {', '.join(_CHAT_ROLES)}"
        )
    if role == "system":
        return _from_system(message, index)
    call_id = message.additional_kwargs.get("tool_call_id") if role == "tool" else None
    return Message(role, _text(message.content, index), tool_call_id=call_id, name=message.name)


_CONVERTERS: tuple[tuple[type[BaseMessage], Callable[[BaseMessage, int], Message]], ...] = (
    (AIMessage, _from_ai),
    (HumanMessage, _from_human),
    (SystemMessage, _from_system),
    (ToolMessage, _from_tool),
    (FunctionMessage, _from_function),
    (ChatMessage, _from_chat),
)


def _text(content: _Content, index: int) -> str:
    """Join text blocks; blocks that repeat tool calls or reasoning are kept elsewhere."""
    if isinstance(content, str):
        return content
    return "".join(_block_text(block, index) for block in content)


def _block_text(block: str | Mapping[str, Any], index: int) -> str:
    if isinstance(block, str):
        return block
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        return cast("str", block["text"])
    if kind in _CALL_BLOCKS or kind in _REASONING_BLOCKS:
        return ""
    raise RequestError(
        f"message {index}: content block of type {kind!r}, but this model reads text only; "
        'send a string or blocks {"type": "text", "text": ...}'
    )


def _reasoning(message: AIMessage) -> str | None:
    text = message.additional_kwargs.get("reasoning_content")
    if isinstance(text, str):
        return text
    if isinstance(message.content, str):
        return None
    blocks = [b for b in message.content if isinstance(b, dict)]
    parts = [
        str(b.get("reasoning") or b.get("thinking") or "")
        for b in blocks
        if b.get("type") in _REASONING_BLOCKS
    ]
    return "".join(parts) or None


def _invalid_from_langchain(call: LCInvalidToolCall) -> InvalidToolCall:
    return InvalidToolCall(
        raw=_as_written(call["args"] or ""),
        error=call["error"] or "",
        name=call["name"],
        id=call["id"] or "",
    )


def message_to_langchain(message: Message) -> BaseMessage:
    """The LangChain message that `message_from_langchain` turns back into ``message``."""
    if message.role == "assistant":
        return ai_message(message)
    if message.role == "tool":
        return ToolMessage(
            content=message.content, tool_call_id=message.tool_call_id or "", name=message.name
        )
    if message.role == "user":
        return HumanMessage(content=message.content, name=message.name)
    extras = {ANCHORS_KEY: dict(message.anchors)} if message.anchors else {}
    return SystemMessage(content=message.content, name=message.name, additional_kwargs=extras)


def ai_message(message: Message, metadata: Mapping[str, Any] | None = None) -> AIMessage:
    """An assistant message, with ``metadata`` beside its handle."""
    handle = {HANDLE_KEY: message.handle} if message.handle else {}
    return AIMessage(
        content=message.content,
        name=message.name,
        tool_calls=[tool_call_to_langchain(call) for call in message.tool_calls],
        invalid_tool_calls=[
            LCInvalidToolCall(
                name=c.name, args=c.raw, id=c.id, error=c.error, type="invalid_tool_call"
            )
            for c in message.invalid_tool_calls
        ],
        additional_kwargs=reasoning_kwargs(message.reasoning),
        response_metadata={**(metadata or {}), **handle},
    )


def tool_call_to_langchain(call: ToolCall) -> LCToolCall:
    return LCToolCall(name=call.name, args=dict(call.arguments), id=call.id, type="tool_call")


def reasoning_kwargs(text: str | None) -> dict[str, Any]:
    """Where LangChain keeps the reasoning of a message."""
    return {"reasoning_content": text} if text else {}


def unparsable(raw: str) -> str:
    """LangChain parses merged chunks leniently: a torn call would come out valid, this does not."""
    try:
        parse_partial_json(raw)
    except ValueError:
        return _TORN + raw if raw.startswith(_TORN) else raw
    return _TORN + raw


def _as_written(raw: str) -> str:
    """Undo `unparsable`."""
    return raw.removeprefix(_TORN)

"""Messages in the form a chat template reads, and in plainer words where it cannot read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cachefriendly.messages import Message, Tool
from cachefriendly.prompt.features import TemplateFeatures, with_reasoning
from cachefriendly.tools.dialect import Dialect

__all__ = ["Wire", "to_wire"]

Wire = dict[str, Any]


def to_wire(
    messages: Sequence[Message],
    tools: Sequence[Tool],
    features: TemplateFeatures,
    dialect: Dialect,
) -> list[Wire]:
    """OpenAI-style dicts, one per message, behind a system message made up where one is needed."""
    plain = [
        message if features.calls else _without_calls(message, features, dialect)
        for message in messages
    ]
    if tools and not features.tools:
        plain = _with_description(plain, dialect.describe(tools), features)
    ids = _call_ids(plain, dialect)
    return [_wire(message, features, ids) for message in plain]


def _call_ids(messages: Sequence[Message], dialect: Dialect) -> dict[str, str]:
    """Every call id as the dialect's templates take it."""
    return {
        call.id: dialect.call_id(call, index)
        for message in messages
        for index, call in enumerate(message.tool_calls)
    }


def _without_calls(message: Message, features: TemplateFeatures, dialect: Dialect) -> Message:
    """Calls become text of the turn; a tool result a user turn where it has no role of its own."""
    if message.role == "tool" and not features.results:
        return Message("user", dialect.render_result(message))
    if not message.tool_calls:
        return message
    calls = dialect.render_calls(message.tool_calls)
    content = f"{message.content}\n{calls}" if message.content else calls
    return replace(message, content=content, tool_calls=())


def _with_description(
    messages: list[Message], description: str, features: TemplateFeatures
) -> list[Message]:
    """The tools, stated once: at the end of the system message, else before the first turn."""
    first = messages[0]
    if first.role == "system":
        return [replace(first, content=_joined(first.content, description)), *messages[1:]]
    if features.system:
        system = _joined(features.default_system or "", description)
        return [Message("system", system), *messages]
    return [replace(first, content=_joined(description, first.content)), *messages[1:]]


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _wire(message: Message, features: TemplateFeatures, ids: Mapping[str, str]) -> Wire:
    wire: Wire = {"role": message.role, "content": _content(message)}
    if message.name:
        wire["name"] = message.name
    if message.tool_call_id:
        wire["tool_call_id"] = ids.get(message.tool_call_id, message.tool_call_id)
    if message.reasoning is not None:
        wire = with_reasoning(wire, message.reasoning, features.reasoning)
    if message.tool_calls:
        wire["tool_calls"] = [
            _wire_call(ids[call.id], call.name, dict(call.arguments), features)
            for call in message.tool_calls
        ]
    return wire


def _content(message: Message) -> str:
    """A call that could not be parsed is part of what the model said: it stays in the text."""
    raws = [call.raw for call in message.invalid_tool_calls]
    return "\n".join(part for part in (message.content, *raws) if part)


def _wire_call(call_id: str, name: str, arguments: Wire, features: TemplateFeatures) -> Wire:
    printed: Any = arguments
    if features.arguments_as_text:
        printed = json.dumps(arguments, ensure_ascii=False)
    wire: Wire = {"type": "function", "function": {"name": name, "arguments": printed}}
    return {"id": call_id, **wire} if call_id else wire

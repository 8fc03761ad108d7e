"""Every untrusted text of a request: read all of them, or change all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cachefriendly.messages import Message, Tool, ToolCall

__all__ = ["TextChange", "texts_of_request"]


class TextChange(ABC):
    """One change of text, made wherever untrusted text stands. False: it changes nothing."""

    __slots__ = ()

    @abstractmethod
    def text(self, text: str) -> str:
        """``text`` changed."""

    def __bool__(self) -> bool:
        return True

    def message(self, message: Message) -> Message:
        """The message with every text of it changed; itself when there is nothing to do."""
        if not self:
            return message
        return replace(
            message,
            content=self.text(message.content),
            name=self._optional(message.name),
            tool_call_id=self._optional(message.tool_call_id),
            reasoning=self._optional(message.reasoning),
            tool_calls=tuple(self._call(call) for call in message.tool_calls),
            invalid_tool_calls=tuple(
                replace(call, raw=self.text(call.raw)) for call in message.invalid_tool_calls
            ),
        )

    def tool(self, tool: Tool) -> Tool:
        if not self:
            return tool
        name, description = self.text(tool.name), self.text(tool.description)
        return Tool(name, description, self.value(tool.parameters))

    def value(self, value: Any) -> Any:
        """Plain data with every string in it changed, keys included."""
        if not self:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def _call(self, call: ToolCall) -> ToolCall:
        return ToolCall(self.text(call.name), self.value(call.arguments), self.text(call.id))

    def _optional(self, text: str | None) -> str | None:
        return None if text is None else self.text(text)


def texts_of_request(
    messages: Sequence[Message],
    tools: Sequence[Tool],
    template_arguments: Mapping[str, Any],
    numbers: Iterable[int] | None = None,
) -> Iterator[tuple[str, str]]:
    """Every untrusted text of a request, with a name for the place it stands at.

    ``numbers``: what the caller calls the messages, where these are not all of a request.
    """
    for index, message in zip(numbers or range(len(messages)), messages, strict=True):
        yield from _texts_of_message(f"message {index} ({message.role})", message)
    for tool in tools:
        where = f"tool {tool.name!r}"
        yield from _texts_of_value(where, [tool.name, tool.description, tool.parameters])
    for name, value in template_arguments.items():
        yield from _texts_of_value(f"template argument {name!r}", value)


def _texts_of_message(where: str, message: Message) -> Iterator[tuple[str, str]]:
    yield where, message.content
    for text in (message.name, message.tool_call_id, message.reasoning):
        if text:
            yield where, text
    for call in message.tool_calls:
        yield where, call.name
        yield where, call.id
        yield from _texts_of_value(where, call.arguments)
    for invalid in message.invalid_tool_calls:
        yield where, invalid.raw


def _texts_of_value(where: str, value: Any) -> Iterator[tuple[str, str]]:
    """Every string inside plain data, keys included."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts_of_value(where, key)
            yield from _texts_of_value(where, item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts_of_value(where, item)

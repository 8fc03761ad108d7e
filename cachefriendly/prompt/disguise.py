"""The door for untrusted text: control tokens in it travel through the template in disguise."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cachefriendly.errors import ControlTokenError, RequestError
from cachefriendly.messages import Message, Tool, ToolCall
from cachefriendly.prompt.control import ControlSet

__all__ = ["Disguise", "disguise_for", "texts_of_request"]

_PLANE_16 = range(0x100000, 0x10FFFE)
_ESCAPE = "\x1a"  # "substitute"; written twice where a text holds it


@dataclass(frozen=True)
class Disguise:
    """One fresh plane-16 character per control token that occurs in the input.

    ``origins`` says where each control token was first met, for errors.
    """

    controls: ControlSet
    placeholders: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.placeholders)

    def message(self, message: Message) -> Message:
        """The message with every text of it disguised; itself when there is nothing to hide."""
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

    def _call(self, call: ToolCall) -> ToolCall:
        return ToolCall(self.text(call.name), self.value(call.arguments), self.text(call.id))

    def _optional(self, text: str | None) -> str | None:
        return None if text is None else self.text(text)

    def text(self, text: str) -> str:
        return self.controls.hide(text, self.placeholders) if self else text

    def value(self, value: Any) -> Any:
        """Plain data with every string in it disguised, keys included."""
        if not self:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def touches(self, text: str) -> bool:
        """Whether something in ``text`` is in disguise."""
        return self.canonical(text) != _escaped(text)

    def canonical(self, text: str) -> str:
        """A form in which disguised control tokens are neither structure nor other text.

        Equal for equal disguised texts of two requests, whatever their placeholders were.
        """
        text = _escaped(text)
        for token, placeholder in self.placeholders.items():
            name = f"{_ESCAPE}{self.controls.by_text[token]}"
            text = text.replace(placeholder, f"{name};")
            if "\\u" in text:
                text = _escape_of(placeholder).sub(f"{name}u;", text)
        return text

    def reveal(self, text: str) -> str:
        """The original text, also where the template wrote JSON escapes of a placeholder.

        Raises:
            ControlTokenError: some other form of a placeholder is left.
        """
        for token, placeholder in self.placeholders.items():
            text = text.replace(placeholder, token)
            if "\\u" in text:
                spelled = json.dumps(token)[1:-1]
                text = _escape_of(placeholder).sub(spelled.replace("\\", r"\\"), text)
            if _remains_of(placeholder).search(text):
                raise ControlTokenError(
                    f"{self.origins[token]} holds the control token {token!r}, and this chat "
                    "template prints that text in a form that cannot be neutralised; remove it"
                )
        return text


def disguise_for(
    controls: ControlSet, texts: Iterator[tuple[str, str]], template_source: str
) -> Disguise:
    """Inspect every ``(where, text)`` of a request.

    Raises:
        RequestError: a text holds a lone surrogate, which has no UTF-8 form and no tokens.
    """
    origins: dict[str, str] = {}
    blob = [template_source]
    for where, text in texts:
        _check_encodable(where, text)
        blob.append(text)
        for token in controls.find(text):
            origins.setdefault(token, where)
    if not origins:
        return Disguise(controls)
    fresh = _fresh_characters("\0".join(blob))
    return Disguise(controls, {token: next(fresh) for token in origins}, origins)


def texts_of_request(
    messages: Sequence[Message], tools: Sequence[Tool], template_arguments: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Every untrusted text of a request, with a name for the place it stands at."""
    for index, message in enumerate(messages):
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


def _check_encodable(where: str, text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{where}: character {error.start} is the lone surrogate {text[error.start]!r}, "
            "which is not text; remove it or decode the source with errors='replace'"
        ) from None


def _fresh_characters(blob: str) -> Iterator[str]:
    """Plane-16 characters of which neither the character nor its escape occurs in ``blob``."""
    lowered = blob.lower()
    for code in _PLANE_16:
        character = chr(code)
        if character not in blob and not _remains_of(character).search(lowered):
            yield character
    raise RequestError("the request uses every private character of plane 16; remove some")


def _escaped(text: str) -> str:
    return text.replace(_ESCAPE, 2 * _ESCAPE)


def _surrogates(character: str) -> tuple[str, str]:
    high, low = divmod(ord(character) - 0x10000, 0x400)
    return f"{0xD800 + high:04x}", f"{0xDC00 + low:04x}"


def _escape_of(character: str) -> re.Pattern[str]:
    high, low = _surrogates(character)
    return re.compile(rf"\\u{high}\\u{low}", re.IGNORECASE)


def _remains_of(character: str) -> re.Pattern[str]:
    """The character itself or any JSON, Python or URL spelling of it."""
    high, low = _surrogates(character)
    percent = "".join(f"%{byte:02x}" for byte in character.encode())
    spellings = [re.escape(character), rf"u{high}\\*u{low}", rf"u0*{ord(character):x}", percent]
    return re.compile("|".join(spellings), re.IGNORECASE)

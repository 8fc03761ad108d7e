"""Messages, tools and tool calls as frozen values: what adapters convert to and from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

from cachefriendly.errors import RequestError

__all__ = [
    "ANCHORS_KEY",
    "HANDLE_KEY",
    "InvalidToolCall",
    "Message",
    "Role",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "canonical_json",
    "check_conversation",
    "message_digest",
    "too_deep",
]

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
ToolChoice: TypeAlias = Literal["auto", "none", "required"] | tuple[Literal["name"], str]
"""``"auto"``, ``"none"``, ``"required"`` (any tool) or ``("name", tool_name)``."""

MAX_JSON_DEPTH = 100
ROLES: tuple[str, ...] = get_args(Role)

HANDLE_KEY = "cachefriendly"
"""The key under which a framework's message carries `Message.handle`."""

ANCHORS_KEY = "cachefriendly_anchors"
"""The key under which a framework's system message carries `Message.anchors`."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model made. ``arguments`` keep the order in which the model wrote them."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""


@dataclass(frozen=True, slots=True)
class InvalidToolCall:
    """A call that could not be parsed: data, never dropped. ``raw`` is the text as generated."""

    raw: str
    error: str
    name: str | None = None
    id: str = ""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool offered to the model. ``parameters`` is a JSON Schema of type object.

    ``late``: it was added to a running conversation and is announced with a user message instead
    of at the top of the prompt (see `cachefriendly.prompt.late_tools`).
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    late: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    ``handle`` names the generation that produced an assistant message (see
    `cachefriendly.prompt.transcript`); it is a hint that is always verified against the content.
    ``anchors`` of a system message: what the names in brackets in its text stand for now (see
    `cachefriendly.anchors`). Values are no part of the message's identity.
    """

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    invalid_tool_calls: tuple[InvalidToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    reasoning: str | None = None
    handle: str | None = None
    anchors: Mapping[str, str] = field(default_factory=dict, hash=False)

    def without_handle(self) -> Message:
        return replace(self, handle=None)

    def detached(self) -> Message:
        """A copy whose mappings nobody else can change; itself where there are none."""
        if not self.tool_calls and not self.anchors:
            return self
        calls = (replace(call, arguments=_plain_copy(call.arguments)) for call in self.tool_calls)
        return replace(self, tool_calls=tuple(calls), anchors=dict(self.anchors))


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no whitespace: equal values give equal text."""
    try:
        return _dumped(value, sort_keys=True)
    except TypeError:  # keys of several kinds, which have no order before they are text
        return _dumped(json.loads(_dumped(value)), sort_keys=True)


def _dumped(value: Any, **options: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str, **options)


def _plain_copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain_copy(item) for key, item in value.items()}
    return [_plain_copy(item) for item in value] if isinstance(value, list | tuple) else value


def too_deep(value: Any) -> bool:
    """Whether JSON is nested deeper than any tool's arguments: templates and parsers recurse."""
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


def message_digest(message: Message) -> bytes:
    """Identity of a message's content (16 bytes), blind to whatever frameworks change in passing.

    Surrounding whitespace of assistant text, the key order of arguments, call ids, handles and
    reasoning do not count (frameworks drop reasoning and handles), nor does the name of an
    assistant (agents sign replies after they were generated). ``False`` and ``0`` differ.
    """
    own = message.role == "assistant"
    text = message.content.strip() if own else message.content
    name = None if own else message.name
    calls = [[call.name, call.arguments] for call in message.tool_calls]
    invalid = [call.raw.strip() for call in message.invalid_tool_calls]
    payload = canonical_json([message.role, name, text, calls, invalid])
    return hashlib.blake2b(payload.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def check_conversation(messages: Sequence[Message]) -> None:
    """Refuse what no template can mean.

    Raises:
        RequestError: the list is empty, a role is unknown, content is not text, or a tool result
            answers no earlier call.
    """
    if not messages:
        raise RequestError("the message list is empty; send at least one message")
    open_calls: set[str] = set()
    seen_call = False
    for index, message in enumerate(messages):
        _check_message(index, message)
        if message.role == "assistant":
            ids = [call.id for call in message.tool_calls]
            ids += [call.id for call in message.invalid_tool_calls]
            open_calls.update(ids)
            seen_call = seen_call or bool(ids)
        if message.role == "tool":
            _check_tool_result(index, message, open_calls, seen_call)


def _check_message(index: int, message: Message) -> None:
    if not isinstance(message, Message):
        kind = type(message).__name__
        raise RequestError(f"message {index} is a {kind}; build cachefriendly.Message values")
    if message.role not in ROLES:
        raise RequestError(
            f"message {index}: unknown role {message.role!r}; use one of {', '.join(ROLES)}"
        )
    if not isinstance(message.content, str):
        kind = type(message.content).__name__
        raise RequestError(
            f"message {index} ({message.role}): content is {kind}, but this model reads text only; "
            "send a string"
        )
    for part in ("name", "reasoning", "tool_call_id"):
        value = getattr(message, part)
        if value is not None and not isinstance(value, str):
            raise RequestError(f"message {index}: {part}={value!r} must be a string or None")
    for call in message.tool_calls:
        _check_arguments(index, call)
    if message.anchors:
        _check_anchors(index, message)


def _check_anchors(index: int, message: Message) -> None:
    where = f"message {index} ({message.role})"
    if message.role != "system":
        raise RequestError(f"{where} has anchors; only system messages take them")
    if not isinstance(message.anchors, Mapping):
        kind = type(message.anchors).__name__
        raise RequestError(f"{where}: anchors are {kind}; send a mapping of names to texts")
    for name, value in message.anchors.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise RequestError(f"{where}: anchor {name!r}={value!r}: name and value must be text")
        if not name.strip() or not name.isprintable() or "[" in name or "]" in name:
            raise RequestError(
                f"{where}: anchor name {name!r} is not usable; take one line without brackets"
            )


def _check_arguments(index: int, call: ToolCall) -> None:
    where = f"message {index}: arguments of call {call.name!r}"
    if not isinstance(call.arguments, Mapping):
        raise RequestError(f"{where} are {type(call.arguments).__name__}; send a mapping")
    if too_deep(call.arguments):
        raise RequestError(f"{where} are nested deeper than {MAX_JSON_DEPTH} levels")
    try:
        json.dumps(call.arguments)
    except (TypeError, ValueError) as error:
        raise RequestError(f"{where} are no JSON: {error}") from error


def _check_tool_result(index: int, message: Message, open_calls: set[str], seen_call: bool) -> None:
    known = message.tool_call_id in open_calls or (not message.tool_call_id and seen_call)
    if not known:
        raise RequestError(
            f"message {index}: tool result for call {message.tool_call_id!r}, but no earlier "
            "assistant message made that call; keep the assistant message with its tool_calls "
            "in the history"
        )

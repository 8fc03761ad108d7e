"""One change of an agent's memory or state: the unit that is stored, sent and replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

from cachefriendly.errors import RequestError
from cachefriendly.messages import Message
from cachefriendly.state.agent import FieldClass, field_class
from cachefriendly.state.codec import (
    dump_json,
    message_from_dict,
    message_to_dict,
    parse_object,
    refuse_rest,
    take,
)

__all__ = ["DiffKind", "StateDiff", "fold"]

DiffKind: TypeAlias = Literal[
    "message_added",
    "message_edited",
    "message_removed",
    "message_archived",
    "noted",
    "tool_result",
    "summary",
    "state",
    "reset",
]

_KINDS: tuple[str, ...] = get_args(DiffKind)
_NEEDS_MESSAGE = {"message_added", "message_edited", "tool_result", "summary"}
_NEEDS_INDEX = {"message_edited", "message_removed", "message_archived", "noted", "summary"}
_MAY_HOLD_EXTRA = _NEEDS_MESSAGE | {"noted"}
_MAY_CHANGE_STATE = {"message_added", "tool_result", "state", "reset"}


@dataclass(frozen=True, slots=True)
class StateDiff:
    """One entry of a `StateLog`.

    Attributes:
        seq: position in the log, from 0.
        kind: ``message_added`` and ``tool_result`` append ``message``; ``message_edited`` puts it
            at ``index``; ``message_removed`` drops ``index``; ``message_archived`` moves it from
            the messages to the archive; ``noted`` gives it another ``extra``; ``summary`` puts
            ``message`` in the place of the ``index`` oldest ones; ``state`` only changes fields;
            ``reset`` forgets all messages, archived ones too.
        changes: new values of `AgentState` fields, only those that changed.
        extra: plain JSON that belongs to the message and is no part of a prompt: what a
            framework's own message holds beside it.
        span: [start, stop) of the token ids this entry produced in the transcript, when known.

    Raises:
        RequestError: the parts do not fit the kind, or a change is one its field class forbids.
    """

    seq: int
    kind: DiffKind
    message: Message | None = None
    index: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    span: tuple[int, int] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise RequestError(f"unknown diff kind {self.kind!r}; use one of {', '.join(_KINDS)}")
        if isinstance(self.seq, bool) or not isinstance(self.seq, int) or self.seq < 0:
            raise RequestError(f"seq={self.seq!r} is not usable; it counts from 0")
        self._check_parts()
        for name in self.changes:
            self._check_change(name)
        object.__setattr__(self, "changes", dict(self.changes))
        object.__setattr__(self, "extra", dict(self.extra))

    def _check_parts(self) -> None:
        if (self.message is not None) != (self.kind in _NEEDS_MESSAGE):
            verb = "needs" if self.kind in _NEEDS_MESSAGE else "takes no"
            raise RequestError(f"a {self.kind} diff {verb} message")
        if (self.index is not None) != (self.kind in _NEEDS_INDEX):
            verb = "needs an" if self.kind in _NEEDS_INDEX else "takes no"
            raise RequestError(f"a {self.kind} diff {verb} index")
        if self.kind == "tool_result" and self.message and self.message.role != "tool":
            raise RequestError(f"a tool_result holds a tool message, not {self.message.role!r}")
        if self.changes and self.kind not in _MAY_CHANGE_STATE:
            raise RequestError(f"a {self.kind} diff takes no changes; append a state diff")
        if self.extra and self.kind not in _MAY_HOLD_EXTRA:
            raise RequestError(f"a {self.kind} diff takes no extra; it belongs to a message")
        if self.span is not None and not 0 <= self.span[0] <= self.span[1]:
            raise RequestError(f"span={self.span} is not a range of token ids")

    def _check_change(self, name: str) -> None:
        kind = field_class(name)
        if kind is FieldClass.IMMUTABLE:
            raise RequestError(f"{name} is immutable ({kind.value}); start another session")
        if kind is FieldClass.SEMI_IMMUTABLE and self.kind != "reset":
            raise RequestError(
                f"{name} may change {kind.value}; use a reset diff or StateLog.clear({name}=...)"
            )

    def check_fits(self, messages: Sequence[Any]) -> None:
        """Refuse an index that these messages do not have."""
        if self.index is None:
            return
        # A summary counts messages, so it may name all of them; the others name one.
        limit = len(messages) if self.kind == "summary" else len(messages) - 1
        if not 0 <= self.index <= limit:
            raise RequestError(
                f"{self.kind}: index {self.index} is outside the {len(messages)} messages there are"
            )

    def to_json(self) -> str:
        """One JSON object on one line; parts that are empty are left out."""
        out: dict[str, Any] = {"seq": self.seq, "kind": self.kind}
        if self.message is not None:
            out["message"] = message_to_dict(self.message)
        if self.index is not None:
            out["index"] = self.index
        if self.changes:
            out["changes"] = dict(self.changes)
        if self.span is not None:
            out["span"] = list(self.span)
        if self.extra:
            out["extra"] = dict(self.extra)
        return dump_json(out, f"diff {self.seq}")

    @classmethod
    def from_json(cls, text: str) -> StateDiff:
        """Inverse of `to_json`; unknown keys and wrong types are refused."""
        rest = parse_object(text, "diff")
        message = take(rest, "message", dict, default=None)
        diff = cls(
            seq=take(rest, "seq", int),
            kind=take(rest, "kind", str),
            message=None if message is None else message_from_dict(message),
            index=take(rest, "index", int, default=None),
            changes=take(rest, "changes", dict, default={}),
            span=_span(take(rest, "span", list, default=None)),
            extra=take(rest, "extra", dict, default={}),
        )
        refuse_rest(rest, "diff")
        return diff


def _span(value: list[Any] | None) -> tuple[int, int] | None:
    if value is None:
        return None
    if len(value) != 2 or not all(type(item) is int for item in value):
        raise RequestError(f"span={value!r} must be two integers")
    return value[0], value[1]


def fold(entries: list[StateDiff], diff: StateDiff) -> list[StateDiff]:
    """Apply one diff in place to the entries whose messages are there; returns what it archived.

    An entry is a diff that brought a message. It keeps its ``seq`` when the message is edited.
    """
    diff.check_fits(entries)
    if diff.kind == "reset":
        entries.clear()
    elif diff.kind in ("message_removed", "message_archived") and diff.index is not None:
        gone = entries.pop(diff.index)
        return [gone] if diff.kind == "message_archived" else []
    elif diff.kind == "noted" and diff.index is not None:
        entries[diff.index] = replace(entries[diff.index], extra=diff.extra)
    elif diff.kind == "message_edited" and diff.index is not None:
        entries[diff.index] = replace(diff, seq=entries[diff.index].seq)
    elif diff.kind == "summary":
        entries[: diff.index] = [diff]
    elif diff.message is not None:
        entries.append(diff)
    return []

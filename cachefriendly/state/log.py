"""Memory as an append-only log: the messages are the fold of the diffs, at any point in time."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from cachefriendly.errors import RequestError
from cachefriendly.messages import Message
from cachefriendly.state.agent import AgentState, state_from_dict, state_to_dict
from cachefriendly.state.codec import dump_json, parse_object, refuse_rest, take
from cachefriendly.state.diff import DiffKind, StateDiff, fold

__all__ = ["StateLog"]

_FORMAT = "cachefriendly-log/1"


class StateLog:
    """Owns one session's diffs. Thread safe; the values it hands out are frozen.

    A turn costs the bytes of its own diffs however long the history is. Nothing is ever taken
    back: an edit, a removal and `clear` are entries too, so every earlier point can be read.
    """

    def __init__(self, state: AgentState | None = None) -> None:
        """``state`` is the state at the session's start; without one there are only messages."""
        self._first_state = state
        self._state = state
        self._diffs: list[StateDiff] = []
        self._entries: list[StateDiff] = []
        self._archived: list[StateDiff] = []
        self._lock = threading.Lock()

    @property
    def diffs(self) -> tuple[StateDiff, ...]:
        with self._lock:
            return tuple(self._diffs)

    @property
    def messages(self) -> tuple[Message, ...]:
        with self._lock:
            return _messages(self._entries)

    @property
    def entries(self) -> tuple[StateDiff, ...]:
        """The diffs that brought `messages`, in their order; each knows its ``extra``."""
        with self._lock:
            return tuple(self._entries)

    @property
    def archived(self) -> tuple[StateDiff, ...]:
        """The diffs that brought the archived messages, oldest first."""
        with self._lock:
            return tuple(sorted(self._archived, key=lambda entry: entry.seq))

    @property
    def state(self) -> AgentState | None:
        """The state now; None when the log was made without one."""
        return self._state

    def __len__(self) -> int:
        """Number of diffs, which is the ``seq`` of the next one."""
        return len(self._diffs)

    def append(self, diff: StateDiff) -> StateDiff:
        """Add one diff, which must carry the next sequence number.

        Raises:
            RequestError: the number is another, the index fits no message, or a change has the
                wrong type. The log is unchanged then.
        """
        with self._lock:
            return self._append(diff)

    def _append(self, diff: StateDiff) -> StateDiff:
        if diff.seq != len(self._diffs):
            raise RequestError(
                f"diff {diff.seq} does not follow: the next is {len(self._diffs)}; "
                "another writer appended first, read the log again"
            )
        if diff.changes and self._state is None:
            raise RequestError("this log has no AgentState to change; use StateLog(state)")
        state = self._state.apply(diff) if self._state is not None else None
        self._archived += fold(self._entries, diff)
        if diff.kind == "reset":
            self._archived.clear()
        self._state = state
        self._diffs.append(diff)
        return diff

    def add_message(
        self,
        message: Message,
        *,
        span: tuple[int, int] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> StateDiff:
        """Append a message; a tool message becomes a ``tool_result``."""
        kind: DiffKind = "tool_result" if message.role == "tool" else "message_added"
        with self._lock:
            seq = len(self._diffs)
            return self._append(StateDiff(seq, kind, message, span=span, extra=extra or {}))

    def edit_message(
        self, index: int, message: Message, *, extra: Mapping[str, Any] | None = None
    ) -> StateDiff:
        """Put ``message`` in the place of the message at ``index``."""
        with self._lock:
            seq = len(self._diffs)
            return self._append(StateDiff(seq, "message_edited", message, index, extra=extra or {}))

    def note(self, index: int, extra: Mapping[str, Any]) -> StateDiff:
        """Give the message at ``index`` another ``extra``."""
        with self._lock:
            return self._append(StateDiff(len(self._diffs), "noted", index=index, extra=extra))

    def remove_message(self, index: int) -> StateDiff:
        with self._lock:
            return self._append(StateDiff(len(self._diffs), "message_removed", index=index))

    def archive_message(self, index: int) -> StateDiff:
        """Move the message at ``index`` to `archived`."""
        with self._lock:
            return self._append(StateDiff(len(self._diffs), "message_archived", index=index))

    def summarize(self, count: int, summary: Message) -> StateDiff:
        """Put ``summary`` in the place of the ``count`` oldest messages."""
        with self._lock:
            return self._append(StateDiff(len(self._diffs), "summary", summary, count))

    def update(self, **changes: Any) -> StateDiff:
        """Change mutable fields of the state."""
        with self._lock:
            return self._append(StateDiff(len(self._diffs), "state", changes=changes))

    def clear(self, **changes: Any) -> StateDiff:
        """Reset the session: no messages; semi-immutable fields may change here and only here."""
        with self._lock:
            return self._append(StateDiff(len(self._diffs), "reset", changes=changes))

    def at(self, seq: int) -> tuple[Message, ...]:
        """The messages right after the diff numbered ``seq``; ``at(-1)`` is the empty start.

        Raises:
            RequestError: there is no such diff.
        """
        entries: list[StateDiff] = []
        for diff in self._until(seq):
            fold(entries, diff)
        return _messages(entries)

    def state_at(self, seq: int) -> AgentState | None:
        """The state right after the diff numbered ``seq``."""
        state = self._first_state
        for diff in self._until(seq):
            state = state.apply(diff) if state is not None else None
        return state

    def _until(self, seq: int) -> Sequence[StateDiff]:
        with self._lock:
            if not -1 <= seq < len(self._diffs):
                raise RequestError(f"no diff {seq}; the log holds {len(self._diffs)}, from 0")
            return self._diffs[: seq + 1]

    def to_json_lines(self, *, since: int = 0) -> str:
        """One line per diff from number ``since`` on; a whole log starts with a header line."""
        with self._lock:
            lines = [diff.to_json() for diff in self._diffs[since:]]
        if since == 0:
            lines.insert(0, self._header())
        return "".join(line + "\n" for line in lines)

    def _header(self) -> str:
        state = None if self._first_state is None else state_to_dict(self._first_state)
        return dump_json({"format": _FORMAT, "state": state}, "log header")

    @classmethod
    def from_json_lines(cls, text: str) -> StateLog:
        """Inverse of ``to_json_lines()``; lines appended later with ``since`` may follow.

        Raises:
            RequestError: a line is torn, unknown, or out of order; the message names its number.
        """
        # Not splitlines(): it also splits at characters that JSON leaves inside strings.
        header, *lines = text.removesuffix("\n").split("\n")
        rest = parse_object(header, "line 1")
        if take(rest, "format", str) != _FORMAT:
            raise RequestError(f"line 1: not a {_FORMAT} log")
        state = take(rest, "state", dict, default=None)
        refuse_rest(rest, "line 1")
        log = cls(None if state is None else state_from_dict(state))
        for number, line in enumerate(lines, start=2):
            try:
                log.append(StateDiff.from_json(line))
            except RequestError as error:
                raise RequestError(f"line {number}: {error}") from error
        return log

    def copy(self) -> StateLog:
        """An independent log with the same history; the frozen diffs are shared."""
        with self._lock:
            twin = StateLog(self._first_state)
            twin._state = self._state
            twin._diffs = list(self._diffs)
            twin._entries = list(self._entries)
            twin._archived = list(self._archived)
            return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> StateLog:
        return self.copy()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StateLog):
            return NotImplemented
        return self._first_state == other._first_state and self.diffs == other.diffs

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"StateLog(diffs={len(self._diffs)}, messages={len(self._entries)})"


def _messages(entries: Sequence[StateDiff]) -> tuple[Message, ...]:
    return tuple(entry.message for entry in entries if entry.message is not None)

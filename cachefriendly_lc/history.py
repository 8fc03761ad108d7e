"""A chat history that is a log of state diffs: constant bytes per turn, every point readable."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage

from cachefriendly.engine.known_turns import KnownTurns
from cachefriendly.errors import ConfigError
from cachefriendly.messages import Message
from cachefriendly.state import MemoryLog, SessionLog, SqliteLog, StateLog
from cachefriendly_lc.convert import message_from_langchain, message_to_langchain
from cachefriendly_lc.scope import current_namespace

if TYPE_CHECKING:
    from cachefriendly_lc.chat_model import ChatCacheFriendly

__all__ = ["SUMMARY_NAME", "StateDiffChatMessageHistory"]

SUMMARY_NAME = "cachefriendly_summary"
"""Name of the system message that stands for messages left out."""


class StateDiffChatMessageHistory(BaseChatMessageHistory):
    """Keeps text, tool calls and handles of each message; ids and provider metadata are dropped.

    In memory, or with ``path`` in an SQLite file that any number of sessions, threads and
    processes may share. Nothing is ever taken back: `clear` is an entry too, see `at`.

    Args:
        log: diffs to begin with; the history takes it over.
        path: the file. Session names are values in it, never part of a file name.
        session_id: which of the file's conversations this is; needed with ``path`` only.
        model: keeps the ids of its replies beside them, so that a conversation that goes on in
            another process has exactly those; without it they are tokenized again from the text.

    Raises:
        ConfigError: the arguments do not fit together, or the path cannot be used.
        StateError: also by the methods: the file cannot be read or written.
    """

    def __init__(
        self,
        log: StateLog | None = None,
        *,
        path: str | Path | None = None,
        session_id: str | None = None,
        model: ChatCacheFriendly | None = None,
    ) -> None:
        if model is not None and path is None:
            raise ConfigError("model= is for histories in a file; in memory its ids are at hand")
        self._model = model
        self._known = KnownTurns()
        if path is None:
            if session_id is not None:
                raise ConfigError(f"session_id={session_id!r} needs path=, the file it is kept in")
            self._log: SessionLog = MemoryLog(log)
        elif log is not None:
            raise ConfigError("give log= or path=, not both; the file has a log of its own")
        elif session_id is None:
            raise ConfigError("path= needs session_id=, the conversation's name in that file")
        else:
            self._log = SqliteLog(path, session_id)

    @property
    def log(self) -> StateLog:
        """The diffs so far; a copy, changing it changes nothing here."""
        return self._log.read()

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """A new list: changing it changes nothing here."""
        return self._recalled(self.log.messages)

    def at(self, seq: int) -> list[BaseMessage]:
        """The messages right after the diff numbered ``seq``; -1 is the empty start.

        Every message added is one diff, and so is `clear`. ``len(history.log)`` counts them.
        """
        return self._recalled(self.log.at(seq))

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append all of them, or none when one cannot be kept."""
        converted = [message_from_langchain(m, index=i) for i, m in enumerate(messages)]

        def add(log: StateLog) -> None:
            for message in converted:
                log.add_message(message)

        self._log.append(add, turns=self._exported(converted))

    def clear(self) -> None:
        """Start over; the log still knows the earlier messages."""
        self._log.append(StateLog.clear)

    def leave_out(self, oldest: Sequence[BaseMessage], *, summary: str | None = None) -> bool:
        """From now on without ``oldest``, with ``summary`` in their place; the log keeps them.

        The summary comes back as a system message named `SUMMARY_NAME`. False, and nothing
        changes, when these are not the oldest messages any more: somebody else was faster.
        """
        expected = tuple(message_from_langchain(m, index=i) for i, m in enumerate(oldest))

        def replace(log: StateLog) -> bool:
            if log.messages[: len(expected)] != expected:
                return False
            if summary is not None:
                log.summarize(len(expected), Message("system", summary, name=SUMMARY_NAME))
                return True
            for _ in expected:
                log.remove_message(0)
            return True

        return self._log.append(replace)

    def _exported(self, messages: Sequence[Message]) -> dict[str, str]:
        if self._model is None:
            return {}
        namespace = self._namespace()
        return self._known.give(self._model.engine, _handles(messages), namespace=namespace)

    def _recalled(self, messages: Sequence[Message]) -> list[BaseMessage]:
        """For LangChain; the engine is given the ids of what other processes said."""
        if self._model is not None:
            engine, namespace = self._model.engine, self._namespace()
            self._known.take(engine, _handles(messages), self._log.turns, namespace=namespace)
        return [message_to_langchain(message) for message in messages]

    def _namespace(self) -> str:
        return current_namespace(self._model.cache_namespace if self._model else "")

    def to_json_lines(self) -> str:
        return self.log.to_json_lines()

    @classmethod
    def from_json_lines(cls, text: str) -> StateDiffChatMessageHistory:
        return cls(StateLog.from_json_lines(text))

    def __reduce__(self) -> Any:
        if isinstance(self._log, SqliteLog):
            place: dict[str, Any] = {"path": self._log.path, "session_id": self._log.session_id}
            return partial(type(self), model=self._model, **place), ()
        return type(self).from_json_lines, (self.to_json_lines(),)


def _handles(messages: Sequence[Message]) -> list[str]:
    return [message.handle for message in messages if message.handle]

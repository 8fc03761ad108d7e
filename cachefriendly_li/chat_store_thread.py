"""One conversation of a chat store: its diffs, and the live messages that were handed out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base_db import MessageStatus

from cachefriendly.messages import Message
from cachefriendly.state import SessionLog, StateDiff, StateLog
from cachefriendly_li.chat_store_changes import drop, replace_all
from cachefriendly_li.chat_store_codec import chat_of, entry_of, note_of, with_note

__all__ = ["ChatThread"]

_T = TypeVar("_T")


class ChatThread:
    """LlamaIndex agents edit a message they got from memory in place and expect to see the edit
    again, so messages are handed out by reference; `sync` records such edits as diffs.

    A log in a file is read again before each use: another process may have appended. Many threads
    may use it: memories are read in threads beside an event loop that puts messages in.
    """

    def __init__(self, log: SessionLog) -> None:
        self._lock = threading.RLock()
        self._log = log
        self._live: list[tuple[StateDiff, ChatMessage]] = []
        self._seen = -1
        self._refresh()

    @property
    def messages(self) -> list[ChatMessage]:
        """A new list of the live messages."""
        with self._lock:
            self._refresh()
            return [chat for _, chat in self._live]

    @property
    def log(self) -> StateLog:
        """The diffs so far, edits made in place included; a copy."""
        with self._lock:
            self._sync()
            return self._log.read()

    def add(self, messages: Sequence[ChatMessage]) -> None:
        with self._lock:
            self._sync(newest_only=True)
            first = len(self._live)
            made = [entry_of(chat, first + index) for index, chat in enumerate(messages)]

            def append(log: StateLog) -> None:
                for message, extra in made:
                    log.add_message(message, extra=extra)

            self._append(append, messages)

    def insert(self, message: ChatMessage, index: int) -> None:
        with self._lock:
            messages = self.messages
            messages.insert(index, message)
            self.replace(messages)

    def remove(self, index: int) -> ChatMessage | None:
        """By its place, from the end where ``index`` is negative; None when there is none."""
        with self._lock:
            self._sync()
            if not -len(self._live) <= index < len(self._live):
                return None
            entry, gone = self._live[index]
            self._append(lambda log: drop(log, entry.seq))
            return gone

    def clear(self) -> list[ChatMessage]:
        """Remove all; what there was."""
        with self._lock:
            messages = self.messages
            self.replace([])
            return messages

    def replace(self, messages: Sequence[ChatMessage]) -> None:
        """Make the conversation these messages; what it already begins with costs no diff."""
        with self._lock:
            self._sync()
            self._append(lambda log: replace_all(log, messages, MessageStatus.ACTIVE), messages)

    def summarize(self, oldest: Sequence[ChatMessage], summary: ChatMessage | None) -> bool:
        with self._lock:
            self._sync()
            return self._summarize(oldest, summary)

    def _summarize(self, oldest: Sequence[ChatMessage], summary: ChatMessage | None) -> bool:
        known = [entry.seq for entry, _ in self._live[: len(oldest)]]
        if [chat for _, chat in self._live[: len(oldest)]] != list(oldest):
            return False

        def change(log: StateLog) -> bool:
            if [entry.seq for entry in log.entries[: len(known)]] != known:
                return False
            if summary is None:
                for seq in known:
                    drop(log, seq)
                return True
            message, extra = entry_of(summary)
            log.summarize(len(known), message)
            if extra:
                log.note(0, extra)
            return True

        return self._append(change)

    def _append(self, change: Callable[[StateLog], _T], added: Sequence[ChatMessage] = ()) -> _T:
        """Store a change; ``added`` are the live messages of what it appends."""
        changed = self._log.append(change)
        self._refresh()
        first = len(self._live) - len(added)
        for index, chat in enumerate(added, start=first):
            # Where it is not equal, another process was faster.
            if index >= 0 and self._live[index][1] == chat:
                self._live[index] = (self._live[index][0], chat)
        return changed

    def _refresh(self) -> None:
        log = self._log.read()
        if len(log) == self._seen:
            return
        known = {entry.seq: (entry, chat) for entry, chat in self._live}
        self._live = [
            (entry, known[entry.seq][1])
            if entry.seq in known and _same(known[entry.seq][0], entry)
            else (entry, chat_of(entry))
            for entry in log.entries
        ]
        self._seen = len(log)

    def _sync(self, *, newest_only: bool = False) -> None:
        self._refresh()
        first = max(len(self._live) - 1, 0) if newest_only else 0
        for index, (entry, chat) in enumerate(self._live[first:], start=first):
            message, extra = entry_of(chat, index)
            extra = with_note(extra, note_of(entry))
            if message != entry.message or extra != dict(entry.extra):
                self._edit(index, entry, message, extra)

    def _edit(self, index: int, entry: StateDiff, message: Message, extra: dict[str, Any]) -> None:
        chat = self._live[index][1]

        def change(log: StateLog) -> None:
            if log.entries[index : index + 1] == (entry,):
                log.edit_message(index, message, extra=extra)

        self._append(change)
        # Another process may have moved it, or taken it away.
        seqs = [known.seq for known, _ in self._live]
        if entry.seq in seqs:
            place = seqs.index(entry.seq)
            self._live[place] = (self._live[place][0], chat)


def _same(before: StateDiff, after: StateDiff) -> bool:
    return before.message == after.message and before.extra == after.extra

"""Where a session's diffs are kept: what is asked of such a place, and the one in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from cachefriendly.state.log import StateLog

__all__ = ["MemoryLog", "SessionLog"]

_T = TypeVar("_T")


class SessionLog(Protocol):
    """One session's diffs, and the exported turns kept with them (see `Engine.export_turn`)."""

    def read(self) -> StateLog:
        """The log as it is now; a copy, changing it changes nothing here.

        Raises:
            StateError: it cannot be read.
        """

    def append(
        self, write: Callable[[StateLog], _T], *, turns: Mapping[str, str] | None = None
    ) -> _T:
        """Keep what ``write`` appends to the log it is given, and ``turns``, texts by handle.

        All of it or nothing, also when ``write`` raises. Returns what ``write`` returned.

        Raises:
            StateError: as `read`, or it cannot be written.
        """

    def turns(self) -> list[str]:
        """The exported turns kept with the session, in no order."""


class MemoryLog:
    """The naive `SessionLog`: it ends with its process. Takes ``log`` over."""

    def __init__(self, log: StateLog | None = None) -> None:
        self._log = StateLog() if log is None else log
        self._turns: dict[str, str] = {}
        self._lock = threading.Lock()

    def read(self) -> StateLog:
        return self._log.copy()

    def append(
        self, write: Callable[[StateLog], _T], *, turns: Mapping[str, str] | None = None
    ) -> _T:
        with self._lock:
            longer = self._log.copy()
            written = write(longer)
            self._log = longer
            self._turns.update(turns or {})
            return written

    def turns(self) -> list[str]:
        return list(self._turns.values())

"""A session's diffs in an SQLite file: appended whole or not at all, by any number of processes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TypeVar

from cachefriendly.errors import ConfigError, RequestError, StateError
from cachefriendly.state.diff import StateDiff
from cachefriendly.state.log import StateLog

__all__ = ["SqliteLog", "session_names"]

_T = TypeVar("_T")

# The name carries the format's version, so that other tables may live in the same file.
_CREATE = """CREATE TABLE IF NOT EXISTS cachefriendly_log_1 (
    session TEXT NOT NULL, seq INTEGER NOT NULL, diff TEXT NOT NULL,
    PRIMARY KEY (session, seq)) WITHOUT ROWID"""
_CREATE_TURNS = """CREATE TABLE IF NOT EXISTS cachefriendly_turns_1 (
    session TEXT NOT NULL, handle TEXT NOT NULL, turn TEXT NOT NULL,
    PRIMARY KEY (session, handle)) WITHOUT ROWID"""
_TURNS = "SELECT turn FROM cachefriendly_turns_1 WHERE session = ?"
_KEEP = "INSERT OR REPLACE INTO cachefriendly_turns_1 (session, handle, turn) VALUES (?, ?, ?)"
_LAST = "SELECT max(seq) FROM cachefriendly_log_1 WHERE session = ?"
_SINCE = "SELECT seq, diff FROM cachefriendly_log_1 WHERE session = ? AND seq >= ? ORDER BY seq"
_INSERT = "INSERT INTO cachefriendly_log_1 (session, seq, diff) VALUES (?, ?, ?)"

# The diff of a group is that of the row with the largest number, which SQLite promises.
_NEWEST = "SELECT session, diff, max(seq) FROM cachefriendly_log_1 GROUP BY session"

_PATIENCE_S = 30.0
"""How long a call waits for another process that writes."""


class SqliteLog:
    """The `SessionLog` of a file. Sessions and processes may share the file; each sees all appends.

    Every call opens the file anew, which takes a fraction of a millisecond: an instance may be
    used by many threads, survive a fork, be copied and pickled, and needs no closing.

    Args:
        path: the file, made when it is missing; its folder must exist.
        session_id: which of the file's conversations this is.

    Raises:
        ConfigError: the path or the session cannot be used.
    """

    def __init__(self, path: str | Path, session_id: str) -> None:
        self.path = _checked_path(path)
        self.session_id = _checked_session(session_id)
        self._log = StateLog()  # what of the file was read so far
        self._lock = threading.Lock()
        with self._opened() as db:
            db.execute(_CREATE)
            db.execute(_CREATE_TURNS)

    def read(self) -> StateLog:
        """The log as it is in the file now; a copy, changing it changes nothing here.

        Raises:
            StateError: the file cannot be read, or does not hold the session whole.
        """
        with self._lock, self._opened() as db:
            db.execute("BEGIN")
            self._catch_up(db)
            db.execute("COMMIT")
            return self._log.copy()

    def turns(self) -> list[str]:
        """The exported turns kept with the session, in no order."""
        with self._opened() as db:
            return [str(turn) for (turn,) in db.execute(_TURNS, (self.session_id,))]

    def append(
        self, write: Callable[[StateLog], _T], *, turns: Mapping[str, str] | None = None
    ) -> _T:
        """Store what ``write`` appends to the log it is given, which is up to date.

        With it ``turns``, texts of `Engine.export_turn` by handle. All of it is stored before this
        returns, or nothing: also when ``write`` raises, another process appends at the same time,
        the disk is full or this process is killed. Returns what ``write`` returned.

        Raises:
            StateError: as `read`, or it cannot be written.
        """
        with self._lock, self._opened() as db:
            db.execute("BEGIN IMMEDIATE")  # nobody else appends from here on
            self._catch_up(db)
            longer = self._log.copy()
            written = write(longer)
            new = longer.diffs[len(self._log) :]
            db.executemany(_INSERT, [(self.session_id, d.seq, d.to_json()) for d in new])
            kept = [(self.session_id, handle, turn) for handle, turn in (turns or {}).items()]
            db.executemany(_KEEP, kept)
            db.execute("COMMIT")
            self._log = longer
            return written

    def _catch_up(self, db: sqlite3.Connection) -> None:
        """Read what was appended since the last look."""
        (last,) = db.execute(_LAST, (self.session_id,)).fetchone()
        if (-1 if last is None else last) < len(self._log) - 1:
            self._log = StateLog()  # somebody deleted the session; it may have begun anew
        for seq, text in db.execute(_SINCE, (self.session_id, len(self._log))).fetchall():
            try:
                self._log.append(StateDiff.from_json(text))
            except (RequestError, TypeError) as error:
                raise StateError(
                    f"{self.path}: session {self.session_id!r}, diff {seq}: {error}"
                ) from error

    def _opened(self) -> AbstractContextManager[sqlite3.Connection]:
        return _connection(self.path)

    def __reduce__(self) -> tuple[type[SqliteLog], tuple[Path, str]]:
        return SqliteLog, (self.path, self.session_id)

    def __repr__(self) -> str:
        return f"SqliteLog({str(self.path)!r}, {self.session_id!r})"


def session_names(path: str | Path) -> list[str]:
    """The sessions of a file that hold something since they were last reset, in no order.

    Raises:
        StateError: the file cannot be read.
    """
    with _connection(_checked_path(path)) as db:
        db.execute(_CREATE)
        newest = [(str(name), str(diff)) for name, diff, _ in db.execute(_NEWEST)]
    return [name for name, diff in newest if StateDiff.from_json(diff).kind != "reset"]


@contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that begins no transaction of its own; an open one is rolled back."""
    try:
        with closing(sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)) as db:
            yield db
    except sqlite3.Error as error:
        raise StateError(f"{path}: {error}") from error


def _checked_path(path: str | Path) -> Path:
    if not isinstance(path, (str, Path)):
        raise ConfigError(f"path is {type(path).__name__}; give the name of a file")
    if str(path) in ("", ":memory:"):
        raise ConfigError(f"path={str(path)!r} is no file; without a path the log is in memory")
    full = Path(path).expanduser().absolute()
    if not full.parent.is_dir():
        raise ConfigError(f"path={str(path)!r}: there is no folder {str(full.parent)!r}")
    return full


def _checked_session(session_id: str) -> str:
    if not isinstance(session_id, str) or not session_id:
        raise ConfigError(f"session_id={session_id!r} is not usable; give a text that names it")
    try:
        session_id.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"session_id={session_id!r} is not valid Unicode") from error
    return session_id

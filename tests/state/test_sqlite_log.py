"""`SqliteLog`: whole appends or none, whoever else writes and whenever a process dies."""

from __future__ import annotations

import copy
import pickle
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from cachefriendly.errors import ConfigError, RequestError, StateError
from cachefriendly.messages import Message
from cachefriendly.state import SqliteLog, StateLog, session_names

PRELUDE = """
import os, signal, sqlite3, sys, time
from pathlib import Path
from cachefriendly.messages import Message
from cachefriendly.state import SqliteLog
path, name = sys.argv[1:]
"""

WRITER = """
log = SqliteLog(path, "shared")
Path(path + "." + name).touch()
while not Path(path + ".go").exists():
    time.sleep(0.001)
for turn in range(60):
    def write(log):
        log.add_message(Message("user", f"{name} {turn}"))
        log.add_message(Message("assistant", f"{name} {turn}"))
    log.append(write)
"""

# Larger than SQLite's page cache: parts of it are in the file already when the process dies.
DYING = """
class Dies(sqlite3.Connection):
    def execute(self, sql, *values):
        if sql == "COMMIT":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(sql, *values)
connect = sqlite3.connect
sqlite3.connect = lambda *values, **options: connect(*values, **options, factory=Dies)
log = SqliteLog(path, "s")
log.append(lambda log: [log.add_message(Message("user", "x" * 1_000_000)) for _ in range(8)])
"""


def start(code: str, path: Path, name: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PRELUDE + code, str(path), name])


def say(log: SqliteLog, *texts: str) -> None:
    log.append(lambda log: [log.add_message(Message("user", text)) for text in texts])


def texts(log: SqliteLog | StateLog) -> list[str]:
    known = log.read() if isinstance(log, SqliteLog) else log
    return [message.content for message in known.messages]


def test_two_processes_append_at_once_and_every_append_stays_together(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    writers = [start(WRITER, path, name) for name in "ab"]
    for name in "ab":
        while not Path(f"{path}.{name}").exists():
            assert all(writer.poll() is None for writer in writers)
    Path(f"{path}.go").touch()
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    said = texts(SqliteLog(path, "shared"))
    assert said[::2] == said[1::2]
    for name in "ab":
        assert [t for t in said[::2] if t[0] == name] == [f"{name} {turn}" for turn in range(60)]


def test_a_process_killed_within_an_append_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    log = SqliteLog(path, "s")
    say(log, "before")
    killed = start(DYING, path)
    assert killed.wait(timeout=60) == -9
    assert path.stat().st_size > 1_000_000  # it died in the middle
    assert texts(SqliteLog(path, "s")) == texts(log) == ["before"]
    say(log, "after")
    assert texts(SqliteLog(path, "s")) == ["before", "after"]


def test_an_append_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = SqliteLog(tmp_path / "log.sqlite", "s")
    say(log, "kept")

    def half(log: StateLog) -> None:
        log.add_message(Message("user", "lost"))
        log.remove_message(7)

    with pytest.raises(RequestError, match="index 7 is outside"):
        log.append(half)
    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", _connecting_to(FullDisk))
        with pytest.raises(StateError, match="disk is full"):
            say(log, "lost, too")
    assert texts(log) == texts(SqliteLog(log.path, "s")) == ["kept"]


class FullDisk(sqlite3.Connection):
    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql == "COMMIT":
            raise sqlite3.OperationalError("database or disk is full")
        return super().execute(sql, *values)


def _connecting_to(kind: type[sqlite3.Connection]) -> Any:
    connect = sqlite3.connect
    return lambda *values, **options: connect(*values, **options, factory=kind)


def test_sessions_are_apart_whatever_they_are_called(tmp_path: Path) -> None:
    names = [
        "a",
        "A",
        "a ",
        "../../etc/x",
        "'; DROP TABLE cachefriendly_log_1; --",
        "%",
        "日本",
        "\0",
    ]
    path = tmp_path / "log.sqlite"
    for name in names:
        say(SqliteLog(path, name), name)
    assert [texts(SqliteLog(path, name)) for name in names] == [[name] for name in names]
    assert [entry.name for entry in tmp_path.iterdir()] == ["log.sqlite"]


def test_every_kind_of_change_and_every_point_in_time_come_back(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.sqlite", "s")
    say(log, "one", "two", "lone \ud800 surrogate, line \u2028 break")
    log.append(lambda log: log.edit_message(0, Message("user", "1")))
    log.append(lambda log: log.remove_message(1))
    log.append(lambda log: log.summarize(2, Message("system", "so far")))
    log.append(StateLog.clear)
    again = SqliteLog(log.path, "s").read()
    assert again == log.read()
    assert texts(again) == []
    assert [len(again.at(seq)) for seq in range(-1, 7)] == [0, 1, 2, 3, 3, 2, 1, 0]


def test_the_names_of_sessions_that_hold_something(tmp_path: Path) -> None:
    path = tmp_path / "log.sqlite"
    assert session_names(path) == []
    for name in ("a", "b", "c"):
        say(SqliteLog(path, name), '","kind":"reset"')
    SqliteLog(path, "b").append(StateLog.clear)
    assert sorted(session_names(path)) == ["a", "c"]


def test_what_it_hands_out_is_a_copy(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.sqlite", "s")
    log.read().add_message(Message("user", "not stored"))
    assert texts(log) == []


def test_threads_copies_and_pickles_share_the_file(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.sqlite", "s")
    twins = [log, log, copy.deepcopy(log), pickle.loads(pickle.dumps(log))]  # noqa: S301
    threads = [threading.Thread(target=_say_many, args=(twin,)) for twin in twins]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts(log)) == 40


def _say_many(log: SqliteLog) -> None:
    for _ in range(10):
        say(log, "x")


def test_a_session_deleted_outside_begins_anew(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.sqlite", "s")
    say(log, "one", "two")
    _alter(log.path, "DELETE FROM cachefriendly_log_1")
    assert texts(log) == []
    say(log, "new")
    assert texts(log) == texts(SqliteLog(log.path, "s")) == ["new"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("DELETE FROM cachefriendly_log_1 WHERE seq = 0", "diff 1: diff 1 does not follow"),
        ("UPDATE cachefriendly_log_1 SET diff = substr(diff, 1, 20)", "diff 0: diff is not JSON"),
        ("UPDATE cachefriendly_log_1 SET diff = x'00ff'", "diff 0: diff is not JSON"),
        ("UPDATE cachefriendly_log_1 SET diff = replace(diff, 'user', 'root')", "unknown role"),
    ],
)
def test_a_damaged_session_is_refused(tmp_path: Path, change: str, what: str) -> None:
    say(SqliteLog(tmp_path / "log.sqlite", "s"), "one", "two")
    say(SqliteLog(tmp_path / "log.sqlite", "other"), "whole")
    _alter(
        tmp_path / "log.sqlite",
        f"{change}{' AND' if 'WHERE' in change else ' WHERE'} session = 's'",
    )
    with pytest.raises(StateError, match=what):
        SqliteLog(tmp_path / "log.sqlite", "s").read()
    assert texts(SqliteLog(tmp_path / "log.sqlite", "other")) == ["whole"]


def _alter(path: Path, sql: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute(sql)
    db.close()


def test_files_and_names_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but long enough to be looked at " * 20)
    with pytest.raises(StateError, match="text: file is not a database"):
        SqliteLog(tmp_path / "text", "s")
    with pytest.raises(ConfigError, match="there is no folder"):
        SqliteLog(tmp_path / "missing" / "log.sqlite", "s")
    for path, session, what in [
        (":memory:", "s", "is no file"),
        ("", "s", "is no file"),
        (3, "s", "path is int"),
        ("x", "", "session_id=''"),
        ("x", 7, "session_id=7"),
        ("x", "\ud800", "not valid Unicode"),
    ]:
        with pytest.raises(ConfigError, match=what):
            SqliteLog(path, session)  # type: ignore[arg-type]

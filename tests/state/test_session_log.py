"""Wherever a session's log is kept: whole appends, copies handed out, turns beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachefriendly.messages import Message
from cachefriendly.state import MemoryLog, SessionLog, SqliteLog, StateLog

HELLO, BYE = Message("user", "Hello"), Message("user", "Bye")


@pytest.fixture(params=["memory", "sqlite"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> SessionLog:
    return MemoryLog() if request.param == "memory" else SqliteLog(tmp_path / "log.db", "s")


def test_what_is_appended_can_be_read(log: SessionLog) -> None:
    log.append(lambda longer: longer.add_message(HELLO))
    log.append(lambda longer: longer.add_message(BYE))
    assert log.read().messages == (HELLO, BYE)


def test_append_returns_what_the_writer_returned(log: SessionLog) -> None:
    assert log.append(lambda longer: longer.add_message(HELLO).seq) == 0


def test_what_is_read_is_a_copy(log: SessionLog) -> None:
    log.read().add_message(HELLO)
    assert log.read().messages == ()


def test_an_append_that_fails_leaves_nothing(log: SessionLog) -> None:
    def half(longer: StateLog) -> None:
        longer.add_message(HELLO)
        raise KeyError

    with pytest.raises(KeyError):
        log.append(half, turns={"cf1:0:1": "text"})
    assert log.read().messages == ()
    assert log.turns() == []


def test_turns_are_kept_with_the_log(log: SessionLog) -> None:
    log.append(lambda longer: longer.add_message(HELLO), turns={"cf1:0:1": "one"})
    log.append(lambda longer: None, turns={"cf1:0:1": "one", "cf1:0:2": "two"})
    assert sorted(log.turns()) == ["one", "two"]

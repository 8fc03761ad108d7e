"""Threads on SQLite after a restart: another process has the exact ids of the first one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from cachefriendly import MissReason
from tests.lc.thread import asking, thread_on

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Any]]:
    """A file with a thread of two questions; prompt and output ids of its four calls."""
    path = str(tmp_path_factory.mktemp("threads") / "threads.sqlite")
    command = [sys.executable, "-m", "tests.lc.earlier_process", path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return path, json.loads(done.stdout)


def after(calls: list[Any], number: int) -> list[int]:
    prompt, output = calls[number]
    return [*prompt, *output]


def test_the_next_question_goes_on_from_the_ids_of_the_first_process(
    stopped: tuple[str, list[Any]],
) -> None:
    path, calls = stopped
    with SqliteSaver.from_conn_string(path) as saver, thread_on(saver, middleware=True) as thread:
        asked, answered = thread.run(asking("three?"))
        assert list(asked.prompt_ids[: len(after(calls, 3))]) == after(calls, 3)
        assert [loss.reason for loss in asked.report.losses] == [MissReason.COMPUTED_ELSEWHERE]
        assert answered.report.losses == ()


def test_a_checkpoint_of_the_first_process_is_forked_and_retried(
    stopped: tuple[str, list[Any]],
) -> None:
    path, calls = stopped
    with SqliteSaver.from_conn_string(path) as saver, thread_on(saver, middleware=True) as thread:
        old = [s for s in thread.history() if s.metadata["step"] <= 8]
        first = next(s for s in old if not s.next and len(s.values["messages"]) == 4)
        fork, _ = thread.run(asking("two, differently?"), first.config)
        assert list(fork.prompt_ids[: len(after(calls, 1))]) == after(calls, 1)
        waiting = next(s for s in old if s.next == ("model",) and len(s.values["messages"]) == 7)
        (again,) = thread.run(None, waiting.config, calls=False)
        assert list(again.prompt_ids) == calls[3][0]


def test_without_the_stored_turns_the_ids_are_others(stopped: tuple[str, list[Any]]) -> None:
    """What the other tests would not notice if replies were tokenized from their text."""
    path, calls = stopped
    with SqliteSaver.from_conn_string(path) as saver, thread_on(saver) as thread:
        waiting = next(s for s in thread.history() if len(s.values["messages"]) == 8)
        ids = thread.prompt_ids(waiting)
    assert list(ids[: len(after(calls, 3))]) != after(calls, 3)

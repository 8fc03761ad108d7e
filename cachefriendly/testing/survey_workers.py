"""Worker processes that examine one model type after another; one that dies or hangs is replaced.

Parent and worker exchange lines: a type's name down, a JSON object up.
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import IO, Any, TypeAlias

__all__ = ["map_types"]

Answer: TypeAlias = dict[str, Any] | str
"""Fields of a `TypeResult`, or why there are none."""

COMMAND = ("-m", __name__)
START_LIMIT = 900.0  # seconds to import everything; 20 on a quiet machine


def map_types(
    types: Sequence[str], *, jobs: int, time_limit: float
) -> Iterator[tuple[str, Answer]]:
    """Every type's answer, as they come."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[str, Answer]] = queue.SimpleQueue()
    for model_type in types:
        waiting.put(model_type)
    threads = [
        threading.Thread(target=_feed, args=(waiting, done, time_limit), daemon=True)
        for _ in range(min(jobs, len(types)))
    ]
    for thread in threads:
        thread.start()
    for _ in types:
        yield done.get()
    for thread in threads:
        thread.join()


def _feed(
    waiting: queue.SimpleQueue[str],
    done: queue.SimpleQueue[tuple[str, Answer]],
    time_limit: float,
) -> None:
    worker: _Worker | None = None
    try:
        while True:
            try:
                model_type = waiting.get_nowait()
            except queue.Empty:
                return
            answer: Answer
            try:
                worker = worker or _Worker()
                answer = worker.ask(model_type, time_limit)
            except _WorkerLost as loss:
                answer = str(loss)
                if worker is not None:
                    worker.close()
                worker = None
            done.put((model_type, answer))
    finally:
        if worker is not None:
            worker.close()


class _WorkerLost(Exception):
    """The process ended, or did not answer in time."""


class _Worker:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", *COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        )
        try:
            self._line(START_LIMIT)
        except _WorkerLost:
            self.close()
            raise

    def ask(self, model_type: str, time_limit: float) -> Answer:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(model_type + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise _WorkerLost("its process had ended") from None
        answer: Answer = json.loads(self._line(time_limit))
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _line(self, limit: float) -> str:
        """One line; workers write a whole one at a time."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + limit
        ready, _, _ = select.select([self._process.stdout], [], [], limit)
        if not ready:
            raise _WorkerLost(f"no answer within {limit:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait(max(0.1, deadline - time.monotonic()))
            raise _WorkerLost(f"its process ended with code {code}")
        return line


def _serve(requests: IO[str], answers: IO[str]) -> None:
    import torch
    from transformers.utils import logging

    from cachefriendly.testing.survey import examine

    torch.set_num_threads(1)
    logging.set_verbosity_error()
    answers.write("ready\n")
    answers.flush()
    for line in requests:
        model_type = line.strip()
        answer: Answer
        try:
            answer = dataclasses.asdict(examine(model_type))
        except Exception as failure:
            text = " ".join(str(failure).split())[:300]
            answer = f"could not be examined: {type(failure).__name__}: {text}"
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    # What a model prints must not get between the answers.
    own = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    sys.stdout = sys.stderr
    _serve(sys.stdin, own)

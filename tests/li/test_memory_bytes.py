"""Bytes that memories store per turn: state diffs against LlamaIndex's own stores."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("bench_li_state_bytes")


def test_a_file_grows_by_the_same_bytes_at_every_turn(bench: Any) -> None:
    stock, ours = (bench.file_sizes(side, 40) for side in (True, False))
    assert bench.constant(ours)
    assert ours[40] <= stock[40]


def test_saving_after_each_turn_writes_each_message_once(bench: Any) -> None:
    saved = bench.written_by_saving(50)
    assert saved["lines"][49] <= 5.1 * saved["lines"][9]
    assert saved["whole"][49] > 20 * saved["whole"][9]
    assert saved["whole"][49] > 20 * saved["lines"][49]

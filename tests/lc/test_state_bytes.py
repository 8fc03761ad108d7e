"""What a checkpointer stores with diffs, against message lists: in bytes, so it holds anywhere."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from tests.lc.thread import asking, thread_on

SAVERS = pytest.mark.parametrize("kind", ["InMemorySaver", "SqliteSaver"])


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("bench_state_bytes")


@SAVERS
def test_diffs_save_most_of_the_bytes_of_lists(bench: Any, kind: str) -> None:
    saved = bench.compared(kind, bench.TYPICAL)["saved"]
    assert saved[10] >= 0.87
    assert saved[50] >= 0.95


@SAVERS
@pytest.mark.parametrize("turns", [60, pytest.param(200, marks=pytest.mark.long)])
def test_every_turn_costs_the_same_apart_from_full_copies(
    bench: Any, kind: str, turns: int
) -> None:
    found = bench.steady(kind, bench.SHORT, turns)
    assert found["constant"]
    assert list(found["full_copies"]) == [26, 51, 101][: 2 if turns == 60 else 3]
    assert all(size > 2 * found["bytes_of_turn_10"] for size in found["full_copies"].values())


def test_a_turn_with_the_middleware_costs_the_same_early_and_late(bench: Any) -> None:
    """It stores the ids of each reply beside it: what the reply adds, never the history."""
    saver, sizes = InMemorySaver(), []
    with thread_on(saver, middleware=True) as thread:
        for turn in range(12):
            thread.run(asking(f"question number {turn:04}?"))
            sizes.append(bench.stored_bytes(saver))
    early, late = sizes[4] - sizes[3], sizes[11] - sizes[10]
    assert late < early * 1.02

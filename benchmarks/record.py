"""What every benchmark prints and keeps: machine, versions, seed, both sides, one JSON file."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


def one_thread() -> None:
    """More threads than idle cores wait for each other at barriers; ratios would mean nothing."""
    torch.set_num_threads(1)


def environment() -> dict[str, Any]:
    packages = ("torch", "transformers", "tokenizers", "cachefriendly")
    return {
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
        "date": time.strftime("%Y-%m-%d"),
    }


def timed(action: Callable[[], Any]) -> tuple[float, float]:
    """Wall and CPU seconds of one run; CPU time tells whether others used the machine."""
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - wall, time.process_time() - cpu


def alternate(
    sides: dict[str, Callable[[], Any]], *, rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Run the sides in turn, so that a machine that slows down slows all of them."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, action in sides.items():
            times[name].append(timed(action))
    return times


def median_ratio(over: list[tuple[float, float]], under: list[tuple[float, float]]) -> float:
    """Median of the ratios of neighbouring runs, by CPU time: the process's own work."""
    return statistics.median(a[1] / b[1] for a, b in zip(over, under, strict=True))


def keep(name: str, result: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    payload = {"benchmark": name, **environment(), **result}
    text = json.dumps(payload, indent=2)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    print(text)

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
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2),
        "seed": "greedy, no randomness",
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


def median_ratios(
    over: list[tuple[float, float]], under: list[tuple[float, float]]
) -> dict[str, float]:
    """Medians of the ratios of neighbouring runs: by wall time, and by the process's own work.

    On a quiet machine they agree; where they do not, others were running.
    """
    pairs = list(zip(over, under, strict=True))
    return {
        "wall_ratio": round(statistics.median(a[0] / b[0] for a, b in pairs), 4),
        "cpu_ratio": round(statistics.median(a[1] / b[1] for a, b in pairs), 4),
    }


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def keep(name: str, result: dict[str, Any], *, passed: bool) -> None:
    """Print and store a result; a missed limit ends the run with an error, after storing it."""
    RESULTS.mkdir(exist_ok=True)
    payload = {"benchmark": name, **environment(), **result, "passed": passed}
    text = json.dumps(payload, indent=2)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    print(text)
    if not passed:
        raise SystemExit(f"{name}: the limit was missed")


def share_of_window(
    run: Callable[[bool], dict[str, float]], *, rounds: int, longest: float
) -> dict[str, Any]:
    """What starting tools early saves: both sides in turn, as medians.

    ``run`` takes one turn, with early tools or without, and says its ``wait_s`` and ``window_s``.
    No more can be saved than ``longest``, the tools' own seconds.
    """
    sides: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for number in range(2 * rounds + 2):
        result = run(bool(number % 2))
        if number > 1:  # the first of each side warms up: later ones find the same tokens held
            sides[bool(number % 2)].append(result)
    shares = [
        (off["wait_s"] - on["wait_s"]) / min(on["window_s"], longest)
        for off, on in zip(sides[False], sides[True], strict=True)
    ]
    return {
        "share_of_window": round(statistics.median(shares), 3),
        "without": _medians(sides[False]),
        "with": _medians(sides[True]),
    }


def _medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(run[name] for run in runs), 4) for name in runs[0]}

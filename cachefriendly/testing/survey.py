"""Which runner every model type of transformers gets, and whether it is exact there.

``python -m cachefriendly.testing.survey [TYPE ...] [--jobs N] [--json]``: small random copies of
every type in the causal-LM registry. Each type runs in a worker process under a time limit.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from transformers import PreTrainedConfig

from cachefriendly.engine.runners import RunnerChoice
from cachefriendly.engine.selfcheck import choose_runner
from cachefriendly.engine.shrink import shrunken_copy
from cachefriendly.engine.small_config import Sizes
from cachefriendly.errors import UnsupportedModel
from cachefriendly.testing.survey_trace import (
    TOLERANCE,
    corrupted_token_effect,
    run_trace,
)
from cachefriendly.testing.survey_types import class_of, default_config, registered_types, windowed

__all__ = ["TypeResult", "examine", "survey"]

Verdict: TypeAlias = Literal["packed", "fallback", "refused"]

# Neither the sizes nor the weights of the copy that is checked at load.
JUDGED = Sizes(window=6, vocabulary=401, layers=5)
SEED = 5
TIME_LIMIT = 240.0  # seconds per type


@dataclass(frozen=True, slots=True)
class TypeResult:
    """One model type.

    Attributes:
        verdict: the runner chosen at load; ``refused``: none.
        reason: why not the packed runner, or why none.
        steps: steps compared with cold runs, windows on and off together.
        wrong: of these, outside the tolerance: silently wrong when not 0.
        near_ties: of these, where a rounding error flips a router.
        error: largest error of a step, relative to the logit scale.
        corrupted: how far one corrupted cached token moves the logits (packed), relative.
    """

    model_type: str
    class_name: str
    verdict: Verdict
    reason: str = ""
    steps: int = 0
    wrong: int = 0
    near_ties: int = 0
    error: float = 0.0
    corrupted: float | None = None
    seconds: float = 0.0

    @property
    def silently_wrong(self) -> bool:
        """Runs, and gives other logits than a cold run; or nobody could tell."""
        unseen = self.corrupted is not None and not self.corrupted > 10 * TOLERANCE
        return self.wrong > 0 or unseen


def examine(model_type: str) -> TypeResult:
    """Choose a runner as at load, then judge it by traces on other sizes, weights and rows."""
    start = time.perf_counter()
    built = class_of(model_type)
    result = TypeResult(model_type, built.__name__, "refused")
    try:
        config = default_config(model_type)
        choice = _choice(config, built)
    except UnsupportedModel as refusal:
        result = dataclasses.replace(result, reason=str(refusal))
    else:
        result = dataclasses.replace(result, verdict=choice.kind, reason=choice.reason)
        result = _judged(result, config, built, choice)
    return dataclasses.replace(result, seconds=round(time.perf_counter() - start, 1))


def _choice(config: PreTrainedConfig, built: Any) -> RunnerChoice:
    return choose_runner(shrunken_copy(config, built))


def _judged(
    result: TypeResult, config: PreTrainedConfig, built: Any, choice: RunnerChoice
) -> TypeResult:
    model, cold = _pair(config, built)
    traces = [run_trace(model, cold, choice)]
    corrupted = corrupted_token_effect(model, cold) if choice.kind == "packed" else None
    with_window = windowed(config)
    if with_window is not None:
        try:
            choice = _choice(with_window, built)
            traces.append(run_trace(*_pair(with_window, built), choice))
        except UnsupportedModel as refusal:
            reason = f"{result.reason} With sliding windows: {refusal}".strip()
            result = dataclasses.replace(result, reason=reason)
    return dataclasses.replace(
        result,
        steps=sum(trace.steps for trace in traces),
        wrong=sum(trace.wrong for trace in traces),
        near_ties=sum(trace.near_ties for trace in traces),
        error=max(trace.error for trace in traces),
        corrupted=corrupted,
    )


def _pair(config: PreTrainedConfig, built: Any) -> tuple[Any, Any]:
    """The model a runner gets, and the same again that no runner touches."""
    model = shrunken_copy(config, built, sizes=JUDGED, seed=SEED)
    return model, copy.deepcopy(model)


def survey(
    types: Sequence[str], *, jobs: int = 1, time_limit: float = TIME_LIMIT
) -> Iterator[TypeResult]:
    """Results as they come, in no order. A type that crashes or hangs its worker is refused."""
    from cachefriendly.testing.survey_workers import map_types

    for model_type, answer in map_types(types, jobs=jobs, time_limit=time_limit):
        if isinstance(answer, str):
            yield TypeResult(model_type, class_of(model_type).__name__, "refused", answer)
        else:
            yield TypeResult(**answer)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 1 when a type is silently wrong."""
    parser = argparse.ArgumentParser(prog="python -m cachefriendly.testing.survey")
    parser.add_argument("types", nargs="*", metavar="TYPE", help="model types; all by default")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--time-limit", type=float, default=TIME_LIMIT, help="seconds per type")
    parser.add_argument("--json", action="store_true", help="an object per type and line")
    options = parser.parse_args(arguments)
    types = tuple(options.types) or registered_types()
    unknown = sorted(set(types) - set(registered_types()))
    if unknown:
        parser.error(f"{unknown[0]!r} is not in transformers' causal-LM registry")
    results = []
    for result in survey(types, jobs=options.jobs, time_limit=options.time_limit):
        results.append(result)
        _progress(result, len(results), len(types))
        if options.json:
            sys.stdout.write(json.dumps(dataclasses.asdict(result)) + "\n")
            sys.stdout.flush()
    counts = Counter(result.verdict for result in results)
    wrong = [result.model_type for result in results if result.silently_wrong]
    sys.stderr.write(f"{dict(counts)}, silently wrong: {wrong or 'none'}\n")
    return 1 if wrong else 0


def _progress(result: TypeResult, done: int, total: int) -> None:
    state = "WRONG" if result.silently_wrong else f"error {result.error:.0e}"
    sys.stderr.write(
        f"[{done:3d}/{total}] {result.model_type:26s} {result.verdict:8s} {state:12s} "
        f"{result.seconds:5.1f} s  {result.reason[:90]}\n"
    )
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main())

"""Rewrites docs/models.md: the runner of every model type of the installed transformers.

``python docs/model_table.py [--jobs N] [--from RESULTS.json]``; without ``--from`` it runs
`cachefriendly.testing.survey`, which takes some ten minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers

from cachefriendly.testing.survey import TypeResult, survey
from cachefriendly.testing.survey_types import registered_types

PAGE = Path(__file__).parent / "models.md"
VERSIONS = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"

HEAD = """# Models

Which runner each model type gets. Made by `python docs/model_table.py` with {versions};
the choice is made anew at every load, on a small random copy of the model at hand.

- **packed**: many rows in one forward over shared keys and values.
- **fallback**: one row per forward over transformers' own cache, with snapshots.
- **refused**: no runner gives the logits of a cold run, or no small copy could be checked.

| packed | fallback | refused | silently wrong |
|---|---|---|---|
| {packed} | {fallback} | {refused} | {wrong} |

{steps:,} steps of random traces (rows that continue, fork and are cropped; windows on and off) were
compared with cold runs on other sizes and weights than the check at load uses. Largest error of an
exact step: {error:.0e} of the logit scale. Steps where a rounding error flips a router: {ties}.
One corrupted cached token moves the logits of every packed type by at least {corrupted:.0e} of
their scale.

| type | class | runner | why not packed |
|---|---|---|---|
"""


def page(results: Sequence[TypeResult]) -> str:
    """The whole document."""
    counts = Counter(result.verdict for result in results)
    head = HEAD.format(
        versions=VERSIONS,
        packed=counts["packed"],
        fallback=counts["fallback"],
        refused=counts["refused"],
        wrong=sum(result.silently_wrong for result in results),
        steps=sum(result.steps for result in results),
        error=max(result.error for result in results),
        ties=sum(result.near_ties for result in results),
        corrupted=min(r.corrupted for r in results if r.corrupted is not None),
    )
    return head + "".join(map(row, sorted(results, key=lambda result: result.model_type)))


def row(result: TypeResult) -> str:
    reason = " ".join(result.reason.replace("|", "\\|").split())
    return f"| {result.model_type} | {result.class_name} | {result.verdict} | {reason} |\n"


def verdicts(document: str) -> dict[str, str]:
    """Runner by type, as a document says."""
    _, table = document.split("| type |")
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ")]
    return {line[1].strip(): line[3].strip() for line in rows}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--from", dest="source", type=Path, help="what `survey --json` wrote")
    options = parser.parse_args()
    if options.source:
        lines = options.source.read_text().splitlines()
        results = [TypeResult(**json.loads(line)) for line in lines]
    else:
        results = []
        for result in survey(registered_types(), jobs=options.jobs):
            results.append(result)
            sys.stderr.write(f"[{len(results)}/{len(registered_types())}] {result.model_type}\n")
    PAGE.write_text(page(results))


if __name__ == "__main__":
    main()

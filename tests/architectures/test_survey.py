"""The survey itself: what it must see, what must not end it."""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
from collections import Counter
from pathlib import Path

import pytest
import torch
import transformers

from cachefriendly.engine.runners import RunnerChoice
from cachefriendly.engine.shrink import shrunken_copy
from cachefriendly.testing import survey_trace, survey_workers
from cachefriendly.testing.survey import TypeResult, survey
from cachefriendly.testing.survey_trace import run_trace
from cachefriendly.testing.survey_types import class_of, default_config, registered_types, windowed

PACKED = RunnerChoice("packed")
PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def pair(model_type: str):
    model = shrunken_copy(default_config(model_type), class_of(model_type))
    return model, copy.deepcopy(model)


def test_a_trace_sees_a_model_that_is_not_the_cold_one():
    model, cold = pair("llama")
    with torch.no_grad():
        model.model.layers[0].self_attn.k_proj.weight[0] *= 1.5
    trace = run_trace(model, cold, PACKED)
    assert trace.wrong > 0
    assert trace.near_ties == 0


def test_a_trace_sees_a_window_that_is_not_applied():
    model, cold = pair("mistral")
    cold.config.sliding_window = 4
    assert run_trace(model, cold, PACKED).wrong > 0


def test_a_fault_is_no_near_tie_and_a_flipped_router_is():
    _, cold = pair("mixtral")
    ids = list(range(1, 20))
    honest = survey_trace._cold(cold, ids)[-1]
    assert survey_trace._is_near_tie(cold, ids, honest, 1e-4 * float(honest.abs().max()))
    faulty = survey_trace._cold(cold, [*ids[:-2], 7, ids[-1]])[-1]
    before = cold.get_input_embeddings().weight.clone()
    assert not survey_trace._is_near_tie(cold, ids, faulty, 1e-4 * float(honest.abs().max()))
    assert torch.equal(before, cold.get_input_embeddings().weight)


def test_an_unseen_corrupted_token_counts_as_silently_wrong():
    good = TypeResult("x", "X", "packed", steps=9, corrupted=0.2)
    assert not good.silently_wrong
    assert dataclasses.replace(good, corrupted=1e-6).silently_wrong
    assert dataclasses.replace(good, corrupted=float("nan")).silently_wrong
    assert dataclasses.replace(good, wrong=1).silently_wrong


def test_windows_that_are_off_by_default_are_turned_on_for_a_second_trace():
    config = windowed(default_config("phimoe"))
    assert config.sliding_window == 4096
    kinds = windowed(default_config("qwen2")).layer_types
    assert set(kinds) == {"sliding_attention", "full_attention"}
    assert windowed(default_config("mistral")) is None


def test_a_worker_that_dies_or_hangs_costs_its_type_only(monkeypatch, tmp_path):
    script = tmp_path / "fake_worker.py"
    script.write_text(
        "import os, sys, time\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin:\n"
        "    if line == 'dies\\n': os._exit(9)\n"
        "    if line == 'hangs\\n': time.sleep(60)\n"
        "    print('{\"n\": 1}', flush=True)\n"
    )
    monkeypatch.setattr(survey_workers, "COMMAND", ("-c", script.read_text()))
    types = ["good", "dies", "better", "hangs", "best"]
    answers = dict(survey_workers.map_types(types, jobs=1, time_limit=3))
    assert answers["good"] == answers["better"] == answers["best"] == {"n": 1}
    assert answers["dies"] == "its process ended with code 9"
    assert answers["hangs"] == "no answer within 3 s"


def test_the_page_has_every_type_of_the_version_it_names():
    text = PAGE.read_text()
    if f"transformers {transformers.__version__}," not in text:
        pytest.skip(f"docs/models.md was made with another version than {transformers.__version__}")
    assert set(table().verdicts(text)) == set(registered_types())


def table():
    spec = importlib.util.spec_from_file_location("model_table", PAGE.parent / "model_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_the_whole_registry():
    """At least 93 types exact on the packed runner, none silently wrong, the page up to date."""
    results = list(survey(registered_types(), jobs=2))
    counts = Counter(result.verdict for result in results)
    assert [r.model_type for r in results if r.silently_wrong] == []
    assert counts["packed"] >= 93, counts
    assert all(result.reason for result in results if result.verdict != "packed")
    text, made = PAGE.read_text(), table()
    if made.VERSIONS in text:
        assert made.verdicts(text) == {r.model_type: r.verdict for r in results}

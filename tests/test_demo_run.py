"""The demo command: what it compares, what it prints, and the two scenarios it is made of."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console

from cachefriendly import demo_run
from cachefriendly.cli import main
from cachefriendly.config import Sampling
from cachefriendly.demo_run import (
    Comparison,
    DemoCall,
    DemoScenario,
    compare,
    demo_engines,
    installed_demos,
)
from cachefriendly.demo_view import comparison_table
from cachefriendly.errors import CacheFriendlyError, MissingExtra
from cachefriendly.events import CacheReport
from cachefriendly.messages import Message
from cachefriendly.request import ChatRequest


def count_to(engine: Any, *, talk: str = "Count to three.") -> list[str]:
    texts, messages = [], [Message("user", talk)]
    for _ in range(2):
        sampling = Sampling(max_tokens=6, temperature=0)
        reply = engine.chat(ChatRequest(tuple(messages), sampling=sampling)).result().message
        texts.append(reply.content)
        messages += [reply, Message("user", "Go on.")]
    return texts


@pytest.fixture(scope="module")
def engines() -> Any:
    warm, cold = demo_engines()
    yield warm, cold
    cold.close()  # the other one belongs to the session


def unwatched(title: str, engine: Any) -> Any:
    return contextlib.nullcontext()


def report(**changes: Any) -> CacheReport:
    return replace(CacheReport(100, 0, 100, 5, 104, ttft_s=2.0, total_s=3.0), **changes)


WARM = report(reused_tokens=90, prefilled_tokens=10, ttft_s=0.5)
TALK = Comparison("A talk", (DemoCall("[b]hello[/b]\nworld", WARM, report()),), identical=True)


def test_both_runs_are_compared_call_by_call(engines):
    done = compare(DemoScenario("Count", count_to), *engines, unwatched)
    assert done.identical
    assert len(done.calls) == 2
    for call in done.calls:
        assert call.cold.prefilled_tokens == call.cold.prompt_tokens == call.warm.prompt_tokens
    assert done.calls[1].warm.reused_tokens > 0
    assert 0 < done.saved_share < 1


def test_a_scenario_starts_from_nothing_however_often_it_runs(engines):
    runs = [compare(DemoScenario("Count", count_to), *engines, unwatched) for _ in range(2)]
    assert runs[0].saved_share == runs[1].saved_share
    assert runs[1].calls[0].warm.reused_tokens == 0


def test_outputs_that_differ_are_found(engines):
    def differ(engine):
        return count_to(engine, talk="Name a fish." if engine.config.reuse else "Name a bird.")

    assert not compare(DemoScenario("Differ", differ), *engines, unwatched).identical


def test_a_scenario_must_return_a_text_for_each_call(engines):
    with pytest.raises(CacheFriendlyError, match="1 texts for 2 model calls"):
        compare(DemoScenario("Short", lambda e: count_to(e)[:1]), *engines, unwatched)


@pytest.mark.parametrize("demo", installed_demos().scenarios, ids=lambda demo: demo.title)
def test_a_turn_of_each_framework_forwards_only_what_is_new(demo, engines):
    engine = engines[0]
    engine.clear()
    before = engine.stats().calls
    texts = demo.run(engine)
    reports = engine.reports()[-len(texts) :]
    assert len(texts) == engine.stats().calls - before >= 6
    assert all(texts)
    for last, now in pairwise(reports):
        # All that was forwarded is held: the prompt, and the reply without its stop token.
        assert now.reused_tokens >= last.prompt_tokens + last.generated_tokens - 1


def test_both_frameworks_are_installed_here():
    found = installed_demos()
    assert [scenario.title.split()[0] for scenario in found.scenarios] == [
        "LangChain",
        "LlamaIndex",
    ]
    assert found.missing == ()


class Entry:
    """An entry point that loads a value or fails with an error."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value

    def load(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


@pytest.fixture
def install(monkeypatch):
    def install(*values: Any) -> None:
        entries = [Entry(str(number), value) for number, value in enumerate(values)]
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries)

    return install


def test_a_framework_that_is_missing_is_left_out(install):
    scenario = DemoScenario("Here", count_to)
    install(MissingExtra("langchain", "agents"), scenario)
    found = installed_demos()
    assert found.scenarios == (scenario,)
    assert found.missing[0].endswith("pip install 'cachefriendly[agents]'")


def test_without_any_framework_the_commands_are_named(install, capsys):
    install(MissingExtra("langchain", "agents"), MissingExtra("llama-index-core", "llamaindex"))
    assert main(["demo"]) == 2
    error = capsys.readouterr().err
    assert "cachefriendly[agents]" in error
    assert "cachefriendly[llamaindex]" in error


@pytest.fixture
def canned(monkeypatch, install):
    """The command with one scenario whose comparison is given."""

    def canned(comparison: Comparison) -> None:
        install(MissingExtra("langchain", "agents"), DemoScenario(comparison.title, count_to))
        monkeypatch.setattr(demo_run, "demo_engines", lambda: (None, None))
        monkeypatch.setattr(demo_run, "compare", lambda *_: comparison)

    return canned


def test_for_people(canned, capsys):
    canned(TALK)
    assert main(["demo"]) == 0
    out, err = capsys.readouterr()
    assert "A talk" in out
    assert "90% of the prefill saved, first tokens 4.0 times earlier, outputs identical." in out
    assert err.startswith("left out: 'langchain' is not installed")


def test_for_machines(canned, capsys):
    canned(TALK)
    assert main(["demo", "--json"]) == 0
    (demo,) = json.loads(capsys.readouterr().out)["demos"]
    assert demo["identical"] is True
    assert demo["saved_share"] == pytest.approx(0.9)
    assert demo["calls"][0]["reuse"]["prefilled_tokens"] == 10
    assert demo["calls"][0]["no_reuse"]["ttft_s"] == 2.0


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_outputs_that_differ_end_with_1(canned, capsys, form):
    canned(replace(TALK, identical=False))
    assert main(["demo", *form]) == 1
    assert ("differ" if not form else '"identical": false') in capsys.readouterr().out


def test_what_a_model_says_is_shown_as_it_is_and_cut_to_the_terminal():
    console = Console(width=80, file=io.StringIO(), record=True)
    long = replace(TALK, calls=(*TALK.calls, DemoCall("word " * 40, WARM, report())))
    console.print(comparison_table(long))
    lines = console.export_text().splitlines()
    assert any("[b]hello[/b] world" in line for line in lines)
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert any("…" in line for line in lines)

"""The demo: conversations run twice on the demo model, with reuse and without, then compared.

The conversations live in the adapters and are found by entry point, since nothing here may know
LangChain or LlamaIndex. An installed package may add its own to the group `GROUP`.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from cachefriendly.config import Sampling
from cachefriendly.errors import CacheFriendlyError, MissingExtra
from cachefriendly.events import CacheReport
from cachefriendly.messages import Message
from cachefriendly.request import ChatRequest

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine

__all__ = [
    "GROUP",
    "Comparison",
    "DemoCall",
    "DemoScenario",
    "InstalledDemos",
    "Watch",
    "compare",
    "demo_engines",
    "installed_demos",
]

GROUP: Final = "cachefriendly.demos"

Watch: TypeAlias = "Callable[[str, Engine], AbstractContextManager[Any]]"
"""Shows that something runs: called with what it is and the engine whose calls to count."""


@dataclass(frozen=True, slots=True)
class DemoScenario:
    """A conversation. ``run`` gives what the model produced, one text per model call."""

    title: str
    run: Callable[[Engine], list[str]]


@dataclass(frozen=True, slots=True)
class InstalledDemos:
    """The scenarios that can run, and for each that cannot the error that names the command."""

    scenarios: tuple[DemoScenario, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DemoCall:
    """One model call of a scenario, and the same call without reuse."""

    text: str
    warm: CacheReport
    cold: CacheReport


@dataclass(frozen=True, slots=True)
class Comparison:
    """A scenario run with and without reuse. ``identical``: both produced the same texts."""

    title: str
    calls: tuple[DemoCall, ...]
    identical: bool

    @property
    def saved_share(self) -> float:
        """The part of the prefill that reuse made unnecessary, between 0 and 1."""
        cold = self.total("cold", "prefilled_tokens")
        return 1 - self.total("warm", "prefilled_tokens") / cold if cold else 0.0

    def total(self, run: str, name: str) -> float:
        """Sum of a field of the reports of one run, ``"warm"`` or ``"cold"``."""
        return sum(float(getattr(getattr(call, run), name)) for call in self.calls)

    def to_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "identical": self.identical,
            "saved_share": self.saved_share,
            "calls": [
                {"text": call.text, "reuse": _figures(call.warm), "no_reuse": _figures(call.cold)}
                for call in self.calls
            ],
        }


def installed_demos() -> InstalledDemos:
    """Every scenario of the entry points.

    Raises:
        CacheFriendlyError: none can run; the message holds the command for each.
    """
    scenarios, missing = [], []
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda e: e.name):
        try:
            scenarios.append(entry.load())
        except MissingExtra as error:
            missing.append(str(error))
    if not scenarios:
        raise CacheFriendlyError("\n".join(missing) or "no demo is installed; reinstall the wheel")
    return InstalledDemos(tuple(scenarios), tuple(missing))


def demo_engines() -> tuple[Engine, Engine]:
    """The demo model with reuse and without, loaded and past whatever torch does only once."""
    from cachefriendly.demo import demo_engine

    with _no_loading_bars():
        warm, cold = demo_engine().load(), demo_engine(reuse=False).load()
    for engine in (warm, cold):
        hello = ChatRequest((Message("user", "Hello"),), sampling=Sampling(max_tokens=2))
        engine.chat(hello).result()
    return warm, cold


def compare(scenario: DemoScenario, warm: Engine, cold: Engine, watch: Watch) -> Comparison:
    """Run the scenario on both engines; they differ in nothing but ``reuse``."""
    with watch(f"{scenario.title}, with reuse", warm):
        texts, reports = _run(scenario, warm)
    with watch(f"{scenario.title}, without reuse", cold):
        cold_texts, cold_reports = _run(scenario, cold)
    # Runs that differ may differ in length, too.
    calls = tuple(map(DemoCall, texts, reports, cold_reports))
    return Comparison(scenario.title, calls, texts == cold_texts)


def _run(scenario: DemoScenario, engine: Engine) -> tuple[list[str], list[CacheReport]]:
    engine.clear()  # every scenario starts from nothing, whatever ran before
    before = engine.stats().calls
    texts = scenario.run(engine)
    calls = engine.stats().calls - before
    if len(texts) != calls:
        raise CacheFriendlyError(
            f"the demo {scenario.title!r} returned {len(texts)} texts for {calls} model calls; "
            "it must return one for each"
        )
    return texts, engine.reports()[-calls:]


def _figures(report: CacheReport) -> dict[str, float]:
    names = ("prompt_tokens", "prefilled_tokens", "generated_tokens", "ttft_s", "total_s")
    return {name: getattr(report, name) for name in names}


@contextlib.contextmanager
def _no_loading_bars() -> Iterator[None]:
    """transformers draws a bar per model it loads, into whatever else is drawn at that moment."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()

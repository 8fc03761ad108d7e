"""Fixtures every test may use. Offline and on one thread before anything imports torch."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator, KeysView
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
import torch

if TYPE_CHECKING:
    from cachefriendly import Engine

# More threads than cores wait for each other at OpenMP barriers; results do not depend on it.
torch.set_num_threads(1)

hypothesis.settings.register_profile("ci", max_examples=60, deadline=None)
hypothesis.settings.register_profile("long", max_examples=2000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """No parameters out of a set: its order differs from process to process, and workers of
    pytest-xdist stop when they collect different lists."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        values = mark.args[1] if len(mark.args) > 1 else mark.kwargs.get("argvalues")
        if isinstance(values, AbstractSet) and not isinstance(values, KeysView):
            raise pytest.UsageError(f"{metafunc.definition.nodeid}: parametrize needs an order")


@pytest.fixture(scope="session")
def demo_engine() -> Iterator[Engine]:
    """The demo model as an engine with default options, shared by every test of the session."""
    from cachefriendly.demo import demo_engine

    engine = demo_engine()
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def demo_pair() -> tuple[Any, Any]:
    """Model and tokenizer of the demo, a copy of its own that no engine has touched."""
    from cachefriendly.demo import load_demo_model

    return load_demo_model()


@pytest.fixture(scope="session")
def demo_model(demo_pair: tuple[Any, Any]) -> Any:
    """The plain transformers model: what the engine is compared with."""
    return demo_pair[0]


@pytest.fixture(scope="session")
def demo_tokenizer(demo_pair: tuple[Any, Any]) -> Any:
    return demo_pair[1]

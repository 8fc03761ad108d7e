"""An LLM on the demo model, one on a tiny model that calls tools by script, and their watches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cachefriendly import Engine
from cachefriendly.testing import embedding_counter, tiny_model
from cachefriendly_li import CacheFriendlyLLM
from tests.li.watch import TOKENIZER, Watch


@pytest.fixture
def watch(demo_engine: Any) -> Iterator[Watch]:
    demo_engine.clear()
    with embedding_counter(demo_engine.model) as seen:
        yield Watch(demo_engine, seen)


@pytest.fixture
def llm(demo_engine: Any) -> CacheFriendlyLLM:
    return CacheFriendlyLLM(
        engine=demo_engine, max_new_tokens=7, generate_kwargs={"do_sample": False}
    )


@pytest.fixture(scope="session")
def tiny_engine() -> Iterator[Engine]:
    """A tiny llama of random weights whose template knows tools; replies come by script."""
    with Engine(tiny_model("llama"), TOKENIZER) as engine:
        yield engine


@pytest.fixture
def tiny_watch(tiny_engine: Engine) -> Iterator[Watch]:
    tiny_engine.clear()
    with embedding_counter(tiny_engine.model) as seen:
        yield Watch(tiny_engine, seen)


@pytest.fixture
def tiny_llm(tiny_engine: Engine, request: pytest.FixtureRequest) -> CacheFriendlyLLM:
    """In a namespace of its own: no test reuses what another one left."""
    return CacheFriendlyLLM(
        engine=tiny_engine,
        max_new_tokens=80,
        generate_kwargs={"do_sample": False},
        cache_namespace=request.node.nodeid,
    )

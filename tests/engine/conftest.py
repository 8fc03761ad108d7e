"""Engines for tests: the demo model with prefills in chunks of 32 tokens, tiny ones by template."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cachefriendly import Engine, EngineConfig
from cachefriendly.config import Sampling
from cachefriendly.demo import demo_engine as make_demo_engine
from cachefriendly.engine.token_engine import TokenEngine
from cachefriendly.rows import GenerateRequest
from cachefriendly.testing import byte_tokenizer, tiny_model
from tests.engine.cases import MakeEngine

IdsOf = Callable[[str], tuple[int, ...]]
RequestOf = Callable[..., GenerateRequest]


@pytest.fixture(scope="session")
def chunked_engine() -> Iterator[Any]:
    engine = make_demo_engine(max_batch_tokens=32)
    yield engine
    engine.close()


@pytest.fixture
def tokens(chunked_engine: Any) -> TokenEngine:
    """The lower half of that engine, holding nothing yet."""
    token_engine: TokenEngine = chunked_engine.token_engine
    token_engine.clear()
    return token_engine


@pytest.fixture(scope="session")
def request_of() -> RequestOf:
    """A greedy request over these ids."""

    def request(ids: tuple[int, ...], max_tokens: int = 12, **options: Any) -> GenerateRequest:
        return GenerateRequest(ids, Sampling(max_tokens=max_tokens, temperature=0, **options))

    return request


@pytest.fixture(scope="session")
def ids_of(demo_tokenizer: Any) -> IdsOf:
    """Prompt ids of a conversation with one user message."""

    def ids(text: str) -> tuple[int, ...]:
        rendered = demo_tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
        )
        return tuple(demo_tokenizer(rendered, add_special_tokens=False).input_ids)

    return ids


@pytest.fixture
def make_engine() -> Iterator[MakeEngine]:
    """Engines over tiny random models with byte tokens, closed afterwards."""
    made: list[Engine] = []

    def make(template: str, **config: Any) -> Engine:
        engine = Engine(tiny_model("llama"), byte_tokenizer(template), EngineConfig(**config))
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()

"""A chat model on the demo engine, and a count of the tokens that really enter the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from cachefriendly.testing import (
    EmbeddingCount,
    byte_tokenizer,
    embedding_counter,
    templates,
    tiny_model,
)
from cachefriendly_lc import ChatCacheFriendly

if TYPE_CHECKING:
    from cachefriendly import Engine


@pytest.fixture
def demo_chat(demo_engine: Engine, request: pytest.FixtureRequest) -> ChatCacheFriendly:
    """Greedy, short, and in a namespace of its own: no test reuses what another one left."""
    return ChatCacheFriendly(
        engine=demo_engine, temperature=0, max_tokens=12, cache_namespace=request.node.nodeid
    )


@pytest.fixture
def embedded(demo_engine: Engine) -> Iterator[EmbeddingCount]:
    with embedding_counter(demo_engine.model) as count:
        yield count


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a tiny model that knows tools, for programs that open one by name."""
    path = tmp_path_factory.mktemp("checkpoint")
    tiny_model("llama").save_pretrained(path)
    byte_tokenizer(templates.NATIVE_TOOLS).save_pretrained(path)
    return str(path)

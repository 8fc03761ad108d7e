"""A chat model on the demo engine, and a count of the tokens that really enter the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from cachefriendly_lc import ChatCacheFriendly

if TYPE_CHECKING:
    from cachefriendly import Engine


@pytest.fixture
def demo_chat(demo_engine: Engine, request: pytest.FixtureRequest) -> ChatCacheFriendly:
    """Greedy, short, and in a namespace of its own: no test reuses what another one left."""
    return ChatCacheFriendly(
        engine=demo_engine, temperature=0, max_tokens=12, cache_namespace=request.node.nodeid
    )


class Embedded:
    """Tokens that entered the embedding, counted by a forward hook."""

    def __init__(self) -> None:
        self.tokens = 0

    def __call__(self, module: Any, args: tuple[Any, ...], output: Any) -> None:
        self.tokens += args[0].numel()

    def taken(self) -> int:
        """Tokens since the last look."""
        tokens, self.tokens = self.tokens, 0
        return tokens


@pytest.fixture
def embedded(demo_engine: Engine) -> Iterator[Embedded]:
    counter = Embedded()
    hook = demo_engine.model.get_input_embeddings().register_forward_hook(counter)
    yield counter
    hook.remove()

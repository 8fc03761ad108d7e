"""A chat model on the demo engine, and a count of the tokens that really enter the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from cachefriendly.testing import EmbeddingCount, embedding_counter
from cachefriendly_lc import ChatCacheFriendly
from cachefriendly_lc.delta import DIFFS_ARE_WHOLE

if TYPE_CHECKING:
    from cachefriendly import Engine

DIFF_TESTS = [
    *(f"test_state_{name}.py" for name in ("agent", "bytes", "channels", "random", "threads")),
    *("test_time_travel.py", "test_time_travel_restart.py"),
]

# Older LangGraphs lose messages of diff channels; `StateDiffAgentState` refuses them.
collect_ignore = [] if DIFFS_ARE_WHOLE else DIFF_TESTS


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

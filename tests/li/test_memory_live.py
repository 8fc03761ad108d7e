"""Two memories restored from one JSON are two memories: neither finds what the other was given."""

from __future__ import annotations

from typing import Any

import pytest

from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import CacheFriendlyLLM, ChatMemoryBuffer, ChatSummaryMemoryBuffer, Memory


def llm_of(tenant: str) -> CacheFriendlyLLM:
    engine: Any = ScriptedEngine("x")
    return CacheFriendlyLLM(engine=engine, cache_namespace=tenant)


@pytest.mark.parametrize("kind", [ChatMemoryBuffer, ChatSummaryMemoryBuffer, Memory])
def test_memories_of_one_json_keep_their_own_llm(kind: Any) -> None:
    """An application may keep one conversation as the beginning of many."""
    first = kind.from_defaults(token_limit=100, tokenizer_fn=list)
    beginning = first.to_dict()
    tenants = {name: llm_of(name) for name in ("a", "b")}
    memories = {
        name: kind.from_dict(beginning, llm=llm, tokenizer_fn=llm.tokenize)
        for name, llm in tenants.items()
    }
    stored = {name: memory.to_dict() for name, memory in memories.items()}
    for name, llm in tenants.items():
        again = kind.from_dict(stored[name])
        assert again.tokenizer_fn == llm.tokenize
        assert getattr(again, "llm", llm) is llm


@pytest.mark.parametrize("kind", [ChatMemoryBuffer, ChatSummaryMemoryBuffer, Memory])
def test_a_memory_that_nothing_happened_to_is_found_by_its_earlier_json(kind: Any) -> None:
    llm = llm_of("a")
    memory = kind.from_defaults(token_limit=100, llm=llm)
    stored = memory.to_dict()
    memory.to_dict()
    assert kind.from_dict(stored).tokenizer_fn == llm.tokenize


@pytest.mark.parametrize("kind", [ChatMemoryBuffer, ChatSummaryMemoryBuffer, Memory])
def test_a_memory_counts_with_the_next_llm_when_the_engine_of_the_first_is_closed(
    kind: Any,
) -> None:
    first, second = llm_of("a"), llm_of("a")
    memory = kind.from_defaults(token_limit=100, llm=first)
    stored = memory.to_dict()
    restored = kind.from_dict(stored)
    restored.use_llm(second)
    assert restored.tokenizer_fn == first.tokenize
    first.engine.close()
    restored.use_llm(second)
    assert restored.tokenizer_fn == second.tokenize

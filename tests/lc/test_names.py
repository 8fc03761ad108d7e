"""Every public name takes what the class it replaces takes: a program changes its import line."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import pytest
from langchain.agents import AgentState
from langchain_classic import memory as classic
from langchain_core.chat_history import BaseChatMessageHistory

import cachefriendly_lc

MEMORIES = [
    "ConversationBufferMemory",
    "ConversationBufferWindowMemory",
    "ConversationTokenBufferMemory",
    "ConversationSummaryMemory",
    "ConversationSummaryBufferMemory",
]
PROMISED = {
    *MEMORIES,
    "CacheFriendlyMiddleware",
    "ChatCacheFriendly",
    "ChatHuggingFace",
    "StateDiffAgentState",
    "StateDiffChatMessageHistory",
}


def test_the_promised_names_are_there() -> None:
    assert set(cachefriendly_lc.__all__) >= PROMISED


@pytest.mark.parametrize("name", MEMORIES)
def test_a_memory_takes_what_the_classic_one_takes(name: str) -> None:
    ours, theirs = getattr(cachefriendly_lc, name), getattr(classic, name)
    assert issubclass(ours, theirs)
    assert theirs.model_fields.keys() <= ours.model_fields.keys()
    for field, was in theirs.model_fields.items():
        now = ours.model_fields[field]
        assert now.is_required() == was.is_required(), field
        if field != "chat_memory":
            assert now.get_default(call_default_factory=True) == was.get_default(
                call_default_factory=True
            ), field


@pytest.mark.parametrize("name", MEMORIES)
@pytest.mark.parametrize("method", ["save_context", "load_memory_variables", "clear"])
def test_a_memorys_methods_take_the_same(name: str, method: str) -> None:
    ours, theirs = getattr(cachefriendly_lc, name), getattr(classic, name)
    assert parameters(ours, method) == parameters(theirs, method)


def test_a_state_has_what_an_agents_state_has() -> None:
    ours = get_type_hints(cachefriendly_lc.StateDiffAgentState, include_extras=True)
    assert get_type_hints(AgentState).keys() <= ours.keys()


def test_a_history_is_one() -> None:
    assert issubclass(cachefriendly_lc.StateDiffChatMessageHistory, BaseChatMessageHistory)
    for method in ("add_messages", "add_message", "clear", "aadd_messages", "aget_messages"):
        ours = parameters(cachefriendly_lc.StateDiffChatMessageHistory, method)
        assert ours == parameters(BaseChatMessageHistory, method)


def parameters(kind: Any, method: str) -> list[str]:
    return list(inspect.signature(getattr(kind, method)).parameters)

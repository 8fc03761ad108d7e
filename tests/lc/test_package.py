"""The package's face: listed names, each with the class it replaces."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import cachefriendly_lc

NAMES = {
    "AnchoredPrompt",
    "CacheFriendlyMiddleware",
    "ChatCacheFriendly",
    "ChatHuggingFace",
    "ConversationBufferMemory",
    "ConversationBufferWindowMemory",
    "ConversationSummaryBufferMemory",
    "ConversationSummaryMemory",
    "ConversationTokenBufferMemory",
    "StateDiffAgentState",
    "StateDiffChatMessageHistory",
    "SummarizationMiddleware",
}


def test_public_names_are_listed_and_exist() -> None:
    assert set(cachefriendly_lc.__all__) == NAMES == set(dir(cachefriendly_lc))
    for name in NAMES:
        assert getattr(cachefriendly_lc, name).__module__.startswith("cachefriendly_lc")
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        cachefriendly_lc.Nothing  # noqa: B018


def test_type_checkers_and_python_see_the_same_names() -> None:
    tree = ast.parse(Path(cachefriendly_lc.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == NAMES

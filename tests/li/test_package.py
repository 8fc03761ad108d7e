"""The package's face: lazy, listed, alone, and helpful when LlamaIndex is missing."""

from __future__ import annotations

import subprocess
import sys

import cachefriendly_li

NAMES = {
    "AgentWorkflow",
    "AnchoredPrompt",
    "CacheFriendlyChatEngine",
    "CacheFriendlyLLM",
    "ChatMemoryBuffer",
    "ChatSummaryMemoryBuffer",
    "CondensePlusContextChatEngine",
    "ContextChatEngine",
    "FunctionAgent",
    "HuggingFaceLLM",
    "Memory",
    "ReActAgent",
    "SimpleChatEngine",
    "StateDiffDBChatStore",
    "as_chat_engine",
}


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout + done.stderr


def test_public_names_are_listed_and_exist() -> None:
    assert set(cachefriendly_li.__all__) == NAMES == set(dir(cachefriendly_li))
    for name in NAMES:
        assert getattr(cachefriendly_li, name).__module__.startswith("cachefriendly_li")
    assert not hasattr(cachefriendly_li, "Nothing")


def test_importing_is_cheap_and_langchain_stays_away() -> None:
    code = """
import sys, cachefriendly_li
assert not {"torch", "llama_index.core"} & set(sys.modules)
for name in cachefriendly_li.__all__:
    getattr(cachefriendly_li, name)
assert "torch" not in sys.modules
assert not [name for name in sys.modules if name.startswith(("langchain", "langgraph"))]
print("fine")
"""
    assert run(code) == "fine\n"


def test_a_missing_llama_index_names_the_command() -> None:
    code = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda n, *a: None if n.startswith("llama_index") else find(n, *a)
try:
    import cachefriendly_li
except ImportError as error:
    print(type(error).__name__, error)
"""
    expected = "MissingExtra 'llama-index-core' is not installed; "
    assert run(code) == expected + "run: pip install 'cachefriendly[llamaindex]'\n"

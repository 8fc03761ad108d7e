"""LlamaIndex on live KV: an LLM, a memory and a chat engine with LlamaIndex's own names.

Importing this package is cheap: a name is loaded from its module when it is first used.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from cachefriendly.errors import MissingExtra

if TYPE_CHECKING:
    from cachefriendly_li.agent import FunctionAgent
    from cachefriendly_li.agent_workflow import AgentWorkflow
    from cachefriendly_li.anchors import AnchoredPrompt
    from cachefriendly_li.chat_engine import CacheFriendlyChatEngine, SimpleChatEngine
    from cachefriendly_li.condense import CondensePlusContextChatEngine
    from cachefriendly_li.context_engine import ContextChatEngine
    from cachefriendly_li.db_store import StateDiffDBChatStore
    from cachefriendly_li.index import as_chat_engine
    from cachefriendly_li.llm import CacheFriendlyLLM, HuggingFaceLLM
    from cachefriendly_li.memory import ChatMemoryBuffer
    from cachefriendly_li.memory_database import Memory
    from cachefriendly_li.memory_summary import ChatSummaryMemoryBuffer
    from cachefriendly_li.react_agent import ReActAgent

__all__ = [
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
]

_MODULES: dict[str, tuple[str, ...]] = {
    "agent": ("FunctionAgent",),
    "agent_workflow": ("AgentWorkflow",),
    "anchors": ("AnchoredPrompt",),
    "chat_engine": ("CacheFriendlyChatEngine", "SimpleChatEngine"),
    "condense": ("CondensePlusContextChatEngine",),
    "context_engine": ("ContextChatEngine",),
    "db_store": ("StateDiffDBChatStore",),
    "index": ("as_chat_engine",),
    "llm": ("CacheFriendlyLLM", "HuggingFaceLLM"),
    "memory": ("ChatMemoryBuffer",),
    "memory_database": ("Memory",),
    "memory_summary": ("ChatSummaryMemoryBuffer",),
    "react_agent": ("ReActAgent",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def _installed() -> bool:
    # llama_index is a namespace that other packages share; only its core counts.
    found = importlib.util.find_spec("llama_index")
    return found is not None and importlib.util.find_spec("llama_index.core") is not None


if not _installed():
    raise MissingExtra("llama-index-core", "llamaindex")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

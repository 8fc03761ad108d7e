"""LangChain on a live KV cache: `ChatCacheFriendly` and what belongs to it.

Names are loaded when first used: the chat model needs langchain-core only, the memories need
langchain-classic, the middleware and the agent state need langchain.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from cachefriendly.errors import MissingExtra

if TYPE_CHECKING:
    from cachefriendly_lc.anchors import AnchoredPrompt
    from cachefriendly_lc.chat_model import ChatCacheFriendly, ChatHuggingFace
    from cachefriendly_lc.history import StateDiffChatMessageHistory
    from cachefriendly_lc.memory import (
        ConversationBufferMemory,
        ConversationBufferWindowMemory,
    )
    from cachefriendly_lc.memory_summary import (
        ConversationSummaryBufferMemory,
        ConversationSummaryMemory,
    )
    from cachefriendly_lc.memory_tokens import ConversationTokenBufferMemory
    from cachefriendly_lc.middleware import CacheFriendlyMiddleware
    from cachefriendly_lc.state import StateDiffAgentState
    from cachefriendly_lc.summarization import SummarizationMiddleware

__all__ = [
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
]

_HOME = {
    "AnchoredPrompt": "anchors",
    "CacheFriendlyMiddleware": "middleware",
    "ChatCacheFriendly": "chat_model",
    "ChatHuggingFace": "chat_model",
    "ConversationBufferMemory": "memory",
    "ConversationBufferWindowMemory": "memory",
    "ConversationSummaryBufferMemory": "memory_summary",
    "ConversationSummaryMemory": "memory_summary",
    "ConversationTokenBufferMemory": "memory_tokens",
    "StateDiffAgentState": "state",
    "StateDiffChatMessageHistory": "history",
    "SummarizationMiddleware": "summarization",
}

if importlib.util.find_spec("langchain_core") is None:
    raise MissingExtra("langchain-core", "langchain")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

"""Live KV cache for local transformers models behind LangChain and LlamaIndex.

Importing this package is cheap: a name is loaded from its module when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cachefriendly.anchors import Anchor, AnchoredPrompt
    from cachefriendly.config import EngineConfig, Sampling
    from cachefriendly.engine.engine import Engine
    from cachefriendly.errors import (
        CacheFriendlyError,
        Cancelled,
        ConfigError,
        ContextOverflow,
        ControlTokenError,
        EngineClosed,
        MissingExtra,
        RequestError,
        RowFailed,
        SchemaError,
        StateError,
        TemplateError,
        UnsupportedModel,
    )
    from cachefriendly.events import (
        CacheReport,
        ChatEvent,
        ChatResult,
        Finished,
        Loss,
        MissReason,
        RawDelta,
        ReasoningDelta,
        TextDelta,
        ToolCallReady,
    )
    from cachefriendly.messages import InvalidToolCall, Message, Tool, ToolCall
    from cachefriendly.request import ChatRequest
    from cachefriendly.state import AgentState, StateDiff, StateLog

__version__ = "0.1.0.dev0"

__all__ = [
    "AgentState",
    "Anchor",
    "AnchoredPrompt",
    "CacheFriendlyError",
    "CacheReport",
    "Cancelled",
    "ChatEvent",
    "ChatRequest",
    "ChatResult",
    "ConfigError",
    "ContextOverflow",
    "ControlTokenError",
    "Engine",
    "EngineClosed",
    "EngineConfig",
    "Finished",
    "InvalidToolCall",
    "Loss",
    "Message",
    "MissReason",
    "MissingExtra",
    "RawDelta",
    "ReasoningDelta",
    "RequestError",
    "RowFailed",
    "Sampling",
    "SchemaError",
    "StateDiff",
    "StateError",
    "StateLog",
    "TemplateError",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolCallReady",
    "UnsupportedModel",
    "__version__",
]

_MODULES: dict[str, tuple[str, ...]] = {
    "anchors": ("Anchor", "AnchoredPrompt"),
    "config": ("EngineConfig", "Sampling"),
    "engine.engine": ("Engine",),
    "errors": (
        "CacheFriendlyError",
        "Cancelled",
        "ConfigError",
        "ContextOverflow",
        "ControlTokenError",
        "EngineClosed",
        "MissingExtra",
        "RequestError",
        "RowFailed",
        "SchemaError",
        "StateError",
        "TemplateError",
        "UnsupportedModel",
    ),
    "events": (
        "CacheReport",
        "ChatEvent",
        "ChatResult",
        "Finished",
        "Loss",
        "MissReason",
        "RawDelta",
        "ReasoningDelta",
        "TextDelta",
        "ToolCallReady",
    ),
    "messages": ("InvalidToolCall", "Message", "Tool", "ToolCall"),
    "request": ("ChatRequest",),
    "state": ("AgentState", "StateDiff", "StateLog"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

"""Test doubles and oracles, shipped so that users can hold their own agents to the same law.

A name is loaded from its module when it is first used: a survey of chat templates needs no model.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cachefriendly.testing import templates

if TYPE_CHECKING:
    from cachefriendly.testing.counting import EmbeddingCount, embedding_counter
    from cachefriendly.testing.engine_double import SCRIPTED_REPORT, ScriptedCall, ScriptedEngine
    from cachefriendly.testing.law import LawReport, LogitRecord, recorded_logits
    from cachefriendly.testing.models import ARCHITECTURES, tiny_model
    from cachefriendly.testing.oracle import cold_generate, cold_logits
    from cachefriendly.testing.script import scripted_replies
    from cachefriendly.testing.tokenizer import byte_tokenizer

__all__ = [
    "ARCHITECTURES",
    "SCRIPTED_REPORT",
    "EmbeddingCount",
    "LawReport",
    "LogitRecord",
    "ScriptedCall",
    "ScriptedEngine",
    "byte_tokenizer",
    "cold_generate",
    "cold_logits",
    "embedding_counter",
    "recorded_logits",
    "scripted_replies",
    "templates",
    "tiny_model",
]

_HOME = {
    "EmbeddingCount": "counting",
    "embedding_counter": "counting",
    "SCRIPTED_REPORT": "engine_double",
    "ScriptedCall": "engine_double",
    "ScriptedEngine": "engine_double",
    "LawReport": "law",
    "LogitRecord": "law",
    "recorded_logits": "law",
    "ARCHITECTURES": "models",
    "tiny_model": "models",
    "cold_generate": "oracle",
    "cold_logits": "oracle",
    "scripted_replies": "script",
    "byte_tokenizer": "tokenizer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value

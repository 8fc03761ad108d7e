"""Test doubles and oracles, shipped so that users can hold their own agents to the same law."""

from __future__ import annotations

from cachefriendly.testing import templates
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

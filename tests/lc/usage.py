"""What a reply's usage says about the tokens its call forwarded and left behind."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from langchain_core.language_models._compat_bridge import message_to_events
from langchain_core.messages import AIMessage

from cachefriendly.testing import EmbeddingCount

__all__ = ["cache_read", "details", "forwarded_for", "held_after", "taken"]


def held_after(reply: AIMessage) -> int:
    """Tokens that are kept once a call is done: all but the token sampled last."""
    usage = reply.usage_metadata
    assert usage is not None
    return usage["input_tokens"] + usage["output_tokens"] - 1


def forwarded_for(reply: AIMessage) -> int:
    """Tokens that a call has to forward: what was not held, and all it generated but the last."""
    usage = reply.usage_metadata
    assert usage is not None
    return details(reply)["cache_creation"] + usage["output_tokens"] - 1


def cache_read(reply: AIMessage) -> int:
    return details(reply)["cache_read"]


def details(reply: AIMessage) -> dict[str, int]:
    """How much of a reply's prompt was held and how much was new."""
    usage: Any = reply.usage_metadata
    assert usage is not None
    if "input_token_details" not in usage and not _events_tell_details():
        pytest.skip("event streams (v3) of this langchain-core leave the details of usage out")
    found: dict[str, int] = usage["input_token_details"]
    return found


@cache
def _events_tell_details() -> bool:
    usage: Any = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    usage["input_token_details"] = {"cache_read": 1}
    events: Any = message_to_events(AIMessage("x", usage_metadata=usage))
    return any("input_token_details" in (event.get("usage") or {}) for event in events)


def taken(count: EmbeddingCount) -> int:
    """Tokens that entered the embedding since the last look."""
    tokens = count.tokens
    count.reset()
    return tokens

"""What a reply's usage says about the tokens its call forwarded and left behind."""

from __future__ import annotations

from langchain_core.messages import AIMessage

from cachefriendly.testing import EmbeddingCount

__all__ = ["cache_read", "forwarded_for", "held_after", "taken"]


def held_after(reply: AIMessage) -> int:
    """Tokens that are kept once a call is done: all but the token sampled last."""
    usage = reply.usage_metadata
    assert usage is not None
    return usage["input_tokens"] + usage["output_tokens"] - 1


def forwarded_for(reply: AIMessage) -> int:
    """Tokens that a call has to forward: what was not held, and all it generated but the last."""
    usage = reply.usage_metadata
    assert usage is not None
    return usage["input_token_details"]["cache_creation"] + usage["output_tokens"] - 1


def cache_read(reply: AIMessage) -> int:
    assert reply.usage_metadata is not None
    return reply.usage_metadata["input_token_details"]["cache_read"]


def taken(count: EmbeddingCount) -> int:
    """Tokens that entered the embedding since the last look."""
    tokens = count.tokens
    count.reset()
    return tokens

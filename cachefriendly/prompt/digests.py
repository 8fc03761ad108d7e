"""Chain digests: the identity of a conversation up to a message, system messages left out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from cachefriendly.messages import Message

__all__ = ["chain_digests", "digest_of"]


def digest_of(*parts: bytes) -> bytes:
    """16 bytes that name these parts and where one ends."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()


def chain_digests(messages: Sequence[Message], digests: Sequence[bytes]) -> list[bytes]:
    """Per message: digest of the conversation up to and with it; ``digests`` are the messages'.

    System messages do not count: a changed system prompt must not hide which replies are known.
    """
    chains, state = [], b""
    for message, digest in zip(messages, digests, strict=True):
        if message.role != "system":
            state = digest_of(state, digest)
        chains.append(state)
    return chains

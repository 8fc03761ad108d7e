"""A conversation as a chain of links: every message with what came before it, by digest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cachefriendly.messages import Message, message_digest
from cachefriendly.prompt.digests import digest_of

__all__ = ["Link", "links_of"]


@dataclass(frozen=True, slots=True)
class Link:
    """One message, its digest, and the digest of the conversation up to and with it.

    System messages do not count for ``chain``: a changed system prompt must not hide which replies
    are known.
    """

    message: Message
    digest: bytes
    chain: bytes

    @property
    def counts(self) -> bool:
        return self.message.role != "system"


def links_of(messages: Iterable[Message], behind: bytes = b"") -> tuple[Link, ...]:
    """``messages`` behind a conversation whose ``chain`` is ``behind``."""
    links: list[Link] = []
    chain = behind
    for message in messages:
        digest = message_digest(message)
        if message.role != "system":
            chain = digest_of(chain, digest)
        links.append(Link(message, digest, chain))
    return tuple(links)

"""A conversation as a chain of links: every message with what came before it, by digest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cachefriendly.messages import Message, message_digest
from cachefriendly.prompt.digests import digest_of

__all__ = ["Link", "links_of", "same_reasoning"]


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

    def detached(self) -> Link:
        """The link with a copy of its message that no caller holds."""
        return replace(self, message=self.message.detached())


def same_reasoning(sent: Message, recorded: Message) -> bool:
    """Whether the reasoning that came back is the recorded one; frameworks may drop it."""
    given = (sent.reasoning or "").strip()
    return not given or given == (recorded.reasoning or "").strip()


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

"""Memory blocks in the newest user turn: what is new of them, and what earlier turns said."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock
from llama_index.core.prompts import RichPromptTemplate

from cachefriendly.errors import RequestError
from cachefriendly_li.db_store import StoredMessage

__all__ = [
    "Told",
    "as_told",
    "block_text",
    "fresh_blocks",
    "memory_text",
    "open_turn",
    "said_before",
]

# A note beside a user message: the text that stands before it, and by block a digest of what that
# text says of the block; an empty one says that the block is empty now.
_TEXT: Final = "memory"
_SAID: Final = "said"


@dataclass(frozen=True, slots=True)
class Told:
    """What is said in one user turn."""

    text: str
    said: Mapping[str, str]

    def note(self) -> dict[str, Any]:
        return {_TEXT: self.text, _SAID: dict(self.said)}


def as_told(stored: StoredMessage) -> ChatMessage:
    """The message as it is sent: behind the memory text that its turn was given."""
    text = stored.note.get(_TEXT)
    if not text:
        return stored.chat
    return ChatMessage(
        role=stored.chat.role,
        blocks=[TextBlock(text=text), *stored.chat.blocks],
        additional_kwargs=dict(stored.chat.additional_kwargs),
    )


def open_turn(messages: Sequence[StoredMessage], offered: int | None) -> int | None:
    """Index of the newest user message, if its turn was not given its memory yet.

    One that is answered is only open when this memory never saw it unanswered (LlamaIndex's own
    RAG engines put a question after it was answered), or nothing was ever said.

    Args:
        offered: number of the newest turn that was given its memory, said or not; None when no
            turn was.
    """
    turn = _newest_turn(messages)
    if turn is None or messages[turn].note or messages[turn].seq == offered:
        return None
    if offered is None and said_before(messages) and _is_answered(messages, turn):
        return None
    return turn


def _newest_turn(messages: Sequence[StoredMessage]) -> int | None:
    for index in reversed(range(len(messages))):
        if messages[index].chat.role == MessageRole.USER:
            return index
    return None


def _is_answered(messages: Sequence[StoredMessage], turn: int) -> bool:
    """Whether a reply follows, so that the turn was sent already."""
    return any(m.chat.role == MessageRole.ASSISTANT for m in messages[turn + 1 :])


def said_before(messages: Sequence[StoredMessage]) -> dict[str, str]:
    """By block, the digest of what the newest mention of it says; dropped turns say nothing."""
    said: dict[str, str] = {}
    for message in messages:
        said |= message.note.get(_SAID) or {}
    return said


def fresh_blocks(
    contents: Mapping[str, Any], said: Mapping[str, str], dropped: Sequence[str] = ()
) -> dict[str, tuple[str, str]]:
    """Text and digest of each block that says something else than before.

    One that is empty now is said to be so; one of ``dropped``, left out for its length, is not.
    """
    fresh: dict[str, tuple[str, str]] = {}
    for name, content in contents.items():
        text = block_text(name, content)
        digest = _digest(text)
        if text and said.get(name) != digest:
            fresh[name] = (text, digest)
    silent = [name for name, digest in said.items() if digest and name not in contents]
    fresh |= {name: ("", "") for name in silent if name not in dropped}
    return fresh


def memory_text(
    fresh: Mapping[str, tuple[str, str]], names: Sequence[str], template: RichPromptTemplate
) -> Told:
    """The blocks in the order of ``names``, through LlamaIndex's own template."""
    known = [name for name in names if name in fresh]
    order = [*known, *(name for name in fresh if name not in known)]
    blocks = [(name, [TextBlock(text=fresh[name][0])]) for name in order]
    messages = template.format_messages(memory_blocks=blocks)
    text = "\n".join(message.content or "" for message in messages)
    return Told(text, {name: fresh[name][1] for name in order})


def block_text(name: str, content: Any) -> str:
    """What a block returned, as text.

    Raises:
        RequestError: it returned something that is no text.
    """
    if isinstance(content, str):
        return content
    return "\n".join(_part_text(name, part) for part in content)


def _part_text(name: str, part: Any) -> str:
    if isinstance(part, TextBlock):
        return part.text
    if isinstance(part, ChatMessage):
        return f"<message role='{part.role.value}'>{part.content or ''}</message>"
    kind = getattr(part, "block_type", type(part).__name__)
    raise RequestError(
        f"memory block {name!r} returned a {kind!r} block, and this model reads text; with "
        'another LLM use layout="stock"'
    )


def _digest(text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=8).hexdigest()

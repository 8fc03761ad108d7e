"""Anchored values in a conversation: bound in a short block before the text of a user message.

Only values that no earlier block of the conversation says are bound, so an unchanged value costs
nothing. A framework that rebuilds its history knows no blocks; each comes back to its message:

- by the handle of a reply to that message, whose record knows the block (also in another process);
- else by session and conversation, from a bounded log: for replies without handles, and for a
  message that is asked again (a retry, a branch), because values hold for a user turn.

The first user message of a conversation is asked again with new values: the same words may begin
another conversation, and another user's values must never stand in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cachefriendly.bounded import BoundedMap
from cachefriendly.messages import Message, message_digest
from cachefriendly.prompt.chain import Link, links_of
from cachefriendly.prompt.digests import digest_of
from cachefriendly.prompt.late_tools import withdrawn
from cachefriendly.prompt.transcript import Transcript
from cachefriendly.request import ChatRequest

__all__ = ["Binder", "Bound", "BoundTalk", "block_text"]

_LOG_TURNS = 100_000


def block_text(values: Mapping[str, str]) -> str:
    """The block of these values, an empty line behind it; "" when there are none.

    Further lines of a value are indented, so that no value can look like another anchor's.
    """
    lines = [f"[{name}]: {_indented(value)}\n" for name, value in values.items()]
    return "".join(lines) + "\n" if lines else ""


def _indented(value: str) -> str:
    return "  ".join(value.splitlines(keepends=True))


@dataclass(frozen=True, slots=True)
class Bound:
    """Values bound before one user message, and what the log calls that message."""

    values: Mapping[str, str]
    place: bytes


@dataclass(frozen=True, slots=True)
class BoundTalk:
    """A conversation with its blocks.

    Attributes:
        messages: the request's, blocks in the text of user messages, no anchors.
        links: theirs.
        plain: the user messages without blocks, by number.
        values: what each block says, by number of its message.
        newest: of the newest user message; None where the request has no anchors.
    """

    messages: tuple[Message, ...]
    links: tuple[Link, ...]
    plain: Mapping[int, Message] = field(default_factory=dict)
    values: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    newest: Bound | None = None

    def among(self, kept: Sequence[int]) -> tuple[Message, ...]:
        """The messages numbered ``kept``; values that left with others are said by the next one."""
        stay = frozenset(kept)
        lost: dict[str, str] = {}
        messages: list[Message] = []
        for index, message in enumerate(self.messages):
            values = self.values.get(index, {})
            if index not in stay:
                lost.update(values)
                continue
            carries = bool(lost) and index in self.plain
            if carries:
                values, lost = {**lost, **values}, {}
            messages.append(_with_block(self.plain[index], values) if carries else message)
        return tuple(messages)


def _with_block(message: Message, values: Mapping[str, str]) -> Message:
    return replace(message, content=block_text(values) + message.content) if values else message


class Binder:
    """Finds and binds values. Thread safe."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._log: BoundedMap[tuple[str, str, bytes], Mapping[str, str]] = BoundedMap(_LOG_TURNS)

    def bind(self, request: ChatRequest, announced: Mapping[str, str] | None = None) -> BoundTalk:
        """The conversation of a request with its blocks. Remembers nothing.

        ``announced``: further values, beside those of the messages' anchors.
        """
        messages = request.messages
        current = {name: value for m in messages for name, value in m.anchors.items()}
        current.update(announced or {})
        if not current:
            return BoundTalk(messages, links_of(messages))
        users = [index for index, message in enumerate(messages) if message.role == "user"]
        turns = dict(zip(users, [*users[1:], len(messages)], strict=False))
        walk = _Walk()
        newest: Bound | None = None
        for index, message in enumerate(messages):
            if index in turns:
                replies = messages[index + 1 : turns[index]]
                now = current if index == users[-1] else None
                newest = self._bound(request, message, replies, walk, now)
                walk.bind(index, message, newest.values)
            else:
                walk.add(replace(message, anchors={}) if message.anchors else message)
        return BoundTalk(tuple(walk.messages), tuple(walk.links), walk.plain, walk.values, newest)

    def _bound(
        self,
        request: ChatRequest,
        message: Message,
        replies: Sequence[Message],
        walk: _Walk,
        current: Mapping[str, str] | None,
    ) -> Bound:
        """The block of a user message; ``current`` values are given for the newest one only."""
        place = digest_of(walk.chain, message_digest(message))
        held = self._of_replies(request.namespace, replies)
        begins = current is not None and not replies and not walk.said
        if held is None and request.session is not None and not begins:
            held = self._log.get((request.namespace, request.session, place))
        if current is None:
            return Bound(held or {}, place)
        current = {**current, **withdrawn(walk.said, current)}
        if held is None:
            return Bound({n: v for n, v in current.items() if walk.said.get(n) != v}, place)
        unsaid = {n: v for n, v in current.items() if n not in walk.said and n not in held}
        return Bound({**held, **unsaid}, place)

    def _of_replies(self, namespace: str, replies: Iterable[Message]) -> Mapping[str, str] | None:
        """What the newest reply with a known handle was told."""
        told: Mapping[str, str] | None = None
        for reply in replies:
            record = self._transcript.get(namespace, reply.handle) if reply.handle else None
            if record is not None and record.bound is not None:
                told = record.bound
        return told

    def remember(self, namespace: str, session: str | None, bound: Bound) -> None:
        """Log what a finished call was told; without a session nobody could tell whose it was."""
        if session is not None:
            self._log.put((namespace, session, bound.place), bound.values)

    def forget(self, namespace: str) -> None:
        self._log.drop(lambda key, values: key[0] == namespace)


class _Walk:
    """The conversation so far, with its blocks, and what they say."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.links: list[Link] = []
        self.plain: dict[int, Message] = {}
        self.values: dict[int, Mapping[str, str]] = {}
        self.said: dict[str, str] = {}

    @property
    def chain(self) -> bytes:
        return self.links[-1].chain if self.links else b""

    def add(self, message: Message) -> None:
        self.messages.append(message)
        self.links += links_of([message], self.chain)

    def bind(self, index: int, message: Message, values: Mapping[str, str]) -> None:
        self.plain[index], self.values[index] = message, values
        self.said.update(values)
        self.add(_with_block(message, values))

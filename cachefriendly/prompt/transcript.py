"""What is known of earlier calls, found again by handle, by conversation and by content.

A record holds only what it adds to the record it extends, so a conversation of n turns costs
O(tokens), not O(n * tokens). Nothing is found across namespaces.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cachefriendly.prompt.chain import Link, same_reasoning
from cachefriendly.prompt.record import Record

__all__ = ["Recognition", "Transcript"]

_MAX_TOKENS = 64_000_000


@dataclass(frozen=True, slots=True)
class Recognition:
    """What is known of a request.

    Attributes:
        known: the record of each recognised reply, by message index.
        latest: the longest record whose whole conversation is the start of this one.
        latest_index: message index of its reply.
        relatives: records this conversation may be a changed form of, the likeliest first.
    """

    known: Mapping[int, Record]
    latest: Record | None
    latest_index: int
    relatives: tuple[Record, ...]

    @property
    def calls(self) -> list[Record]:
        """All that is known, the newest reply's call first."""
        return [*(self.known[index] for index in sorted(self.known, reverse=True)), *self.relatives]

    def among(self, kept: Sequence[int]) -> Recognition:
        """The same with only the messages numbered ``kept``, numbered anew; -1 for one left out."""
        numbers = {index: number for number, index in enumerate(kept)}
        known = {numbers[i]: record for i, record in self.known.items() if i in numbers}
        return replace(self, known=known, latest_index=numbers.get(self.latest_index, -1))


class Transcript:
    """Records of all namespaces; bounded by tokens; thread safe."""

    def __init__(self, max_tokens: int = _MAX_TOKENS) -> None:
        self.max_tokens = max_tokens
        self.held_tokens = 0
        self._lock = threading.Lock()
        self._by_handle: OrderedDict[tuple[str, str], Record] = OrderedDict()
        self._by_chain: dict[tuple[str, bytes], Record] = {}
        self._by_digest: dict[tuple[str, bytes], Record] = {}
        # The newest record that starts with a conversation of that chain.
        self._by_start: dict[tuple[str, bytes], Record] = {}

    def __len__(self) -> int:
        return len(self._by_handle)

    def get(self, namespace: str, handle: str) -> Record | None:
        """The record of that handle."""
        with self._lock:
            return self._by_handle.get((namespace, handle))

    def recognise(self, namespace: str, links: Sequence[Link]) -> Recognition:
        """Find each assistant message: by handle, else by conversation, else by content.

        A handle is a hint from outside: it counts only if the content is the recorded one.
        Equal content alone may be chance: it names a relative, and a known reply only where no
        reasoning of another conversation comes with it.
        """
        known: dict[int, Record] = {}
        edited: Record | None = None  # its handle is here, its content is not
        moved: Record | None = None  # its content is here, behind other messages
        latest, latest_index = None, -1
        with self._lock:
            for index, link in enumerate(links):
                if link.message.role != "assistant":
                    continue
                named = self._by_handle.get((namespace, link.message.handle or ""))
                alike = self._by_digest.get((namespace, link.digest))
                record = self._find(namespace, named, link)
                if record is None and alike is not None and _only_says(alike, link):
                    record = alike
                if record is None:
                    edited = named or edited
                else:
                    known[index] = record
                if record is not None and record.chain == link.chain:
                    latest, latest_index = record, index
                # A reply with another handle was made elsewhere and only says the same.
                elif (other := record or alike) and link.message.handle in (None, other.handle):
                    moved = other
            relatives = (edited, self._longest_start(namespace, links), moved)
            self._touch(latest)
        return Recognition(known, latest, latest_index, tuple(r for r in relatives if r))

    def _find(self, namespace: str, named: Record | None, link: Link) -> Record | None:
        """By handle or conversation; where they name two records, the conversation decides."""
        if named is not None and named.reply_digest != link.digest:
            named = None
        candidates = [named, self._by_chain.get((namespace, link.chain))]
        candidates.sort(key=lambda record: record is None or record.chain != link.chain)
        agreeing = (r for r in candidates if r and same_reasoning(link.message, r.reply))
        return next(agreeing, None)

    def _longest_start(self, namespace: str, links: Sequence[Link]) -> Record | None:
        """The newest record that has most messages from the start on in common with ``links``."""
        starts = (self._by_start.get((namespace, link.chain)) for link in reversed(links))
        return next((record for record in starts if record is not None), None)

    def add(self, record: Record) -> str:
        """Keep the record (or the equal one already held); returns its handle."""
        key = _key(record)
        with self._lock:
            if key not in self._by_handle:
                self._by_handle[key] = record
                self.held_tokens += record.cost
            held = self._by_handle[key]
            self._by_chain[held.namespace, held.chain] = held
            self._by_digest[held.namespace, held.reply_digest] = held
            for link in _counted(held.conversation()):
                self._by_start[held.namespace, link.chain] = held
            self._touch(held)
            self._shrink(held)
        return record.handle

    def forget(self, namespace: str) -> None:
        """Drop everything of a namespace."""
        with self._lock:
            for key in [key for key in self._by_handle if key[0] == namespace]:
                self.held_tokens -= self._by_handle.pop(key).cost
            for index in (self._by_chain, self._by_digest, self._by_start):
                for stale in [entry for entry in index if entry[0] == namespace]:
                    del index[stale]

    def _touch(self, record: Record | None) -> None:
        """Leaf first, root last: the oldest entry is then always one nobody builds on."""
        for held in record.upwards() if record else ():
            if _key(held) in self._by_handle:
                self._by_handle.move_to_end(_key(held))

    def _shrink(self, newest: Record) -> None:
        while self.held_tokens > self.max_tokens:
            key = next(iter(self._by_handle))
            if self._by_handle[key] is newest:
                return
            self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        record = self._by_handle.pop(key)
        self.held_tokens -= record.cost
        for index, entry in (
            (self._by_chain, (record.namespace, record.chain)),
            (self._by_digest, (record.namespace, record.reply_digest)),
        ):
            if index.get(entry) is record:
                del index[entry]
        self._drop_starts(record)

    def _drop_starts(self, record: Record) -> None:
        """A start shared with the parent is the parent's again."""
        links, parent = record.conversation(), record.parent
        if parent is not None and self._by_handle.get(_key(parent)) is not parent:
            parent = None
        for number, link in enumerate(links):
            entry = (record.namespace, link.chain)
            if self._by_start.get(entry) is not record:
                continue
            if parent is not None and number < record.shared_links:
                self._by_start[entry] = parent
            else:
                del self._by_start[entry]


def _key(record: Record) -> tuple[str, str]:
    return record.namespace, record.handle


def _only_says(record: Record, link: Link) -> bool:
    """The recorded reply is its content and nothing else, as far as its messages tell."""
    return not record.reply.reasoning and same_reasoning(link.message, record.reply)


def _counted(links: Iterable[Link]) -> Iterable[Link]:
    return (link for link in links if link.counts)

"""What every call had: prompt ids, output ids, the reply. Token ids are the truth, not text.

A record holds only what it adds to the record it extends, so a conversation of n turns costs
O(tokens), not O(n * tokens). Nothing is found across namespaces.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cachefriendly.messages import Message

__all__ = ["Recognition", "Record", "Transcript"]

_MAX_TOKENS = 64_000_000


@dataclass(eq=False)
class Record:
    """One finished call. Nothing of it changes once it is in a transcript.

    Token intervals of ``ids()``::

        [0, shared)             the first ids of ``parent``, all of them as a rule
        [shared, prompt_stop)   what the prompt added, ``own``
        [prompt_stop, stop)     ``output``, without the sampled stop token

    Attributes:
        reply: the message in canonical form, arguments in the order the model wrote them.
        generation_prompt: the text of it in this call; "" where it is not separable.
        run_length: characters between the last recorded block of the prompt and that text.
        base: digest of that block and of those characters (see `cachefriendly.prompt.draft`).
        inputs: digests of the system messages, tools and template arguments.
    """

    namespace: str
    handle: str
    parent: Record | None
    shared: int
    own: array[int]
    output: array[int]
    output_text: str
    reply: Message
    reply_digest: bytes
    chain: bytes
    generation_prompt: str
    run_length: int
    base: bytes
    inputs: tuple[bytes, bytes, bytes]
    moment: datetime
    prompt_stop: int = field(init=False)
    stop: int = field(init=False)

    def __post_init__(self) -> None:
        self.prompt_stop = self.shared + len(self.own)
        self.stop = self.prompt_stop + len(self.output)

    def lineage(self) -> list[Record]:
        """The records this one is built on, oldest first, itself last."""
        line: list[Record] = []
        record: Record | None = self
        while record is not None:
            line.append(record)
            record = record.parent
        return line[::-1]

    def ids(self) -> list[int]:
        """Prompt and output ids."""
        ids: list[int] = []
        for record in self.lineage():
            del ids[record.shared :]
            ids.extend(record.own)
            ids.extend(record.output)
        return ids

    @property
    def cost(self) -> int:
        """Tokens this record holds itself."""
        return len(self.own) + len(self.output) + 1


@dataclass(frozen=True, slots=True)
class Recognition:
    """Which messages of a request are known.

    ``known`` by message index; ``edited``: the handle is known and the content is another one;
    ``latest`` is the longest record whose whole conversation is the start of this one.
    """

    known: Mapping[int, Record]
    edited: Mapping[int, Record]
    latest: Record | None
    latest_index: int = -1


class Transcript:
    """Records by handle, by conversation and by content; bounded by tokens; thread safe."""

    def __init__(self, max_tokens: int = _MAX_TOKENS) -> None:
        self.max_tokens = max_tokens
        self.held_tokens = 0
        self._lock = threading.Lock()
        self._by_handle: OrderedDict[tuple[str, str], Record] = OrderedDict()
        self._by_chain: dict[tuple[str, bytes], Record] = {}
        self._by_digest: dict[tuple[str, bytes], Record] = {}

    def __len__(self) -> int:
        return len(self._by_handle)

    def recognise(
        self,
        namespace: str,
        messages: Sequence[Message],
        digests: Sequence[bytes],
        chains: Sequence[bytes],
    ) -> Recognition:
        """Find each assistant message: by handle, else by conversation, else by content.

        A handle is a hint from outside: it counts only if the content is the recorded one.
        """
        known: dict[int, Record] = {}
        edited: dict[int, Record] = {}
        latest, latest_index = None, -1
        with self._lock:
            for index, message in enumerate(messages):
                if message.role != "assistant":
                    continue
                named = self._by_handle.get((namespace, message.handle or ""))
                record = self._find(namespace, named, digests[index], chains[index])
                if record is not None:
                    known[index] = record
                    if record.chain == chains[index]:
                        latest, latest_index = record, index
                elif named is not None:
                    edited[index] = named
            self._touch(latest)
        return Recognition(known, edited, latest, latest_index)

    def _find(
        self, namespace: str, named: Record | None, digest: bytes, chain: bytes
    ) -> Record | None:
        if named is not None and named.reply_digest != digest:
            named = None
        if named is not None and named.chain == chain:
            return named
        same_conversation = self._by_chain.get((namespace, chain))
        return same_conversation or named or self._by_digest.get((namespace, digest))

    def add(self, record: Record) -> str:
        """Keep the record (or the equal one already held); returns its handle."""
        key = (record.namespace, record.handle)
        with self._lock:
            if key not in self._by_handle:
                self._by_handle[key] = record
                self.held_tokens += record.cost
            held = self._by_handle[key]
            self._by_chain[record.namespace, record.chain] = held
            self._by_digest[record.namespace, record.reply_digest] = held
            self._touch(held)
            self._shrink(held)
        return record.handle

    def forget(self, namespace: str) -> None:
        """Drop everything of a namespace."""
        with self._lock:
            for key in [key for key in self._by_handle if key[0] == namespace]:
                self._drop(key)
            for index in (self._by_chain, self._by_digest):
                for stale in [entry for entry in index if entry[0] == namespace]:
                    del index[stale]

    def _touch(self, record: Record | None) -> None:
        """Leaf first, root last: the oldest entry is then always one nobody builds on."""
        for held in _upwards(record):
            key = (held.namespace, held.handle)
            if key in self._by_handle:
                self._by_handle.move_to_end(key)

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


def _upwards(record: Record | None) -> Iterator[Record]:
    while record is not None:
        yield record
        record = record.parent

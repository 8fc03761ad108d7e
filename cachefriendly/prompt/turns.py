"""Recorded calls that travel: written as text, and taken back by another process."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from cachefriendly.errors import RequestError
from cachefriendly.prompt.tokens import TextTokenizer
from cachefriendly.prompt.transcript import Transcript
from cachefriendly.prompt.turn_text import TurnText, turn_text

__all__ = ["Turns"]

log = logging.getLogger(__name__)

# A text that passes its check but holds other values than a writer of this version puts there.
_UNREADABLE = (ValueError, TypeError, OverflowError, RecursionError)


class Turns:
    """Writes and takes turns of one transcript under one identity. Thread safe."""

    def __init__(self, transcript: Transcript, tokens: TextTokenizer, identity: str) -> None:
        self.identity = identity
        self._transcript = transcript
        self._tokens = tokens

    def export(self, handle: str, namespace: str) -> str | None:
        """The text of one call; None when it is not known, or JSON cannot hold its messages."""
        record = self._transcript.get(namespace, handle)
        if record is None:
            return None
        try:
            return turn_text(record, self.identity)
        except RequestError as error:
            log.warning("a turn cannot travel: %s", error)
            return None

    def take(self, texts: Iterable[str], namespace: str, vocabulary: int) -> int:
        """Add the calls that fit, parents first whatever the order; returns how many are known now.

        Whatever does not fit is a miss: one line in the log names the reasons.

        Args:
            vocabulary: token ids are below it.
        """
        refused: Counter[str] = Counter()
        behind: dict[str | None, list[TurnText]] = {}
        for text in texts:
            if (turn := self._read(text, refused)) is not None:
                behind.setdefault(turn.parent, []).append(turn)
        taken = 0
        ready = [name for name in behind if self._known(namespace, name)]
        while ready:
            for turn in behind.pop(ready.pop(), ()):
                if self._add(turn, namespace, vocabulary, refused):
                    taken += 1
                    ready.append(turn.handle)
        refused["their parents are not here"] += sum(map(len, behind.values()))
        if +refused:
            reasons = "; ".join(f"{reason} ({count})" for reason, count in (+refused).items())
            log.warning("turns not taken: %s", reasons)
        return taken

    def _read(self, text: str, refused: Counter[str]) -> TurnText | None:
        try:
            turn = TurnText.read(text)
        except _UNREADABLE as error:
            refused[str(error)] += 1
            return None
        if turn.identity != self.identity:
            refused["made with another model, tokenizer or chat template"] += 1
            return None
        return turn

    def _known(self, namespace: str, handle: str | None) -> bool:
        """Whether a call can go on from there; None is the start of a conversation."""
        return handle is None or self._transcript.get(namespace, handle) is not None

    def _add(self, turn: TurnText, namespace: str, vocabulary: int, refused: Counter[str]) -> bool:
        if self._known(namespace, turn.handle):
            return True
        try:
            parent = self._transcript.get(namespace, turn.parent) if turn.parent else None
            record = turn.record(namespace, parent, self._tokens, vocabulary)
        except _UNREADABLE as error:
            refused[str(error)] += 1
            return False
        self._transcript.add(record)
        return True

"""Stop strings over a stream of ids: what may be shown, and where the reply must be cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["StopWatch", "Stopped"]


@dataclass(frozen=True, slots=True)
class Stopped:
    """A stop string was completed: keep the first ``ids``, then ``text`` of the id it cuts."""

    ids: int
    text: str


class StopWatch:
    """Follows one row's text; ``push`` decodes ids incrementally (see `StreamDecoder`).

    ``safe`` counts the ids whose text can no longer be part of a stop string; only these may be
    handed to the caller.
    """

    def __init__(self, stops: tuple[str, ...], push: Callable[[tuple[int, ...]], str]) -> None:
        self._stops = stops
        self._push = push
        self._text = ""
        self._ends: list[int] = []  # by id: where the text that it completes ends
        self._held_back = 0  # ids at the end whose character is not whole yet
        self.safe = 0

    def feed(self, token: int) -> Stopped | None:
        """Count one id; tells when a stop string is complete."""
        before = len(self._text)
        piece = self._push((token,))
        self._held_back += 1
        if piece:
            self._text += piece
            # Ids that share a character end where it ends: none of them can be kept alone.
            self._ends += [len(self._text)] * self._held_back
            self._held_back = 0
        start = max(0, before - max(map(len, self._stops)))
        hits = [at for stop in self._stops if (at := self._text.find(stop, start)) >= 0]
        if hits:
            return self._cut(min(hits))
        settled = len(self._text) - self._pending()
        while self.safe < len(self._ends) and self._ends[self.safe] <= settled:
            self.safe += 1
        return None

    def _cut(self, at: int) -> Stopped:
        kept = sum(1 for end in self._ends if end <= at)
        start = self._ends[kept - 1] if kept else 0
        return Stopped(kept, self._text[start:at])

    def _pending(self) -> int:
        """Length of the longest end of the text that begins a stop string."""
        longest = 0
        for stop in self._stops:
            for length in range(min(len(stop) - 1, len(self._text)), longest, -1):
                if self._text.endswith(stop[:length]):
                    longest = length
                    break
        return longest

"""Where the JSON body of a call ends, when texts that may also stand in its strings end it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cachefriendly.tools.json_scan import JsonScanner
from cachefriendly.tools.stream import held_back

__all__ = ["BodyEnd", "JsonBody"]


@dataclass(frozen=True, slots=True)
class BodyEnd:
    """The body ends at ``body``, the call at ``call``; ``whole``: not by the reply's end."""

    body: int
    call: int
    whole: bool


class JsonBody:
    """Follows one body, that begins at ``start`` of a text that grows.

    ``closes`` end the call and belong to it, ``stops`` end it and belong to what follows. Inside a
    JSON string they are text, unless the JSON never becomes whole: then the first of them ends the
    (broken) call, of ``breaks`` where those are given.
    """

    def __init__(
        self,
        closes: Sequence[str],
        stops: Sequence[str] = (),
        *,
        start: int = 0,
        breaks: Sequence[str] = (),
    ) -> None:
        self._closes = frozenset(closes)
        self._markers = tuple(sorted({*closes, *stops}, key=len, reverse=True))
        self._breaks = tuple(breaks) or self._markers
        self._starts = frozenset(marker[0] for marker in self._markers)
        self._scanner = JsonScanner()
        self._start = self._at = start

    def find(self, text: str, final: bool) -> BodyEnd | None:
        """The end of the body in ``text``, which has grown since the last time; None: go on.

        ``final``: the reply is over, so the body ends somewhere.
        """
        scanner = self._scanner
        while self._at < len(text):
            at = self._at
            if not scanner.in_string and text[at] in self._starts:
                if (end := self._marker(text, at)) is not None:
                    return end
                if held_back(text[at:], *self._markers) == len(text) - at:
                    return BodyEnd(at, len(text), scanner.status == "done") if final else None
            sound = scanner.status != "bad"
            scanner.push(text[at])
            self._at += 1
            broke = sound and scanner.status == "bad"
            if broke and (end := self._first_marker(text, at)) is not None:
                return end
        return self._last(text) if final else None

    def _last(self, text: str) -> BodyEnd:
        whole = self._scanner.status == "done"
        found = None if whole else self._first_marker(text, len(text))
        return found or BodyEnd(len(text), len(text), whole)

    def _first_marker(self, text: str, stop: int) -> BodyEnd | None:
        """The JSON is broken: was the end of the call taken for a part of a string?"""
        found = (text.find(marker, self._start, stop) for marker in self._breaks)
        places = [at for at in found if at >= 0]
        return self._marker(text, min(places)) if places else None

    def _marker(self, text: str, at: int) -> BodyEnd | None:
        for marker in self._markers:
            if text.startswith(marker, at):
                return BodyEnd(at, at + (len(marker) if marker in self._closes else 0), True)
        return None

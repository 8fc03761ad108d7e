"""Ids to text while they arrive: every piece once, never half a character."""

from __future__ import annotations

from collections.abc import Sequence

from cachefriendly.prompt.tokens import TextTokenizer

__all__ = ["StreamDecoder"]

# Bytes that never become a character are given out after this many ids.
_PATIENCE = 64


class StreamDecoder:
    """Incremental decoder of one reply; the pieces add up to the text of all ids.

    Only a window of ids is decoded again at each push: those behind the last piece, and those of
    the piece before it, because a decoder looks at the neighbour (spaces, byte runs). So the cost
    per id does not grow with the reply. Bytes that make no character become U+FFFD; what was given
    out is never taken back, whatever a decoder makes of the whole run of bytes. Not thread safe.
    """

    def __init__(self, tokens: TextTokenizer) -> None:
        self._tokens = tokens
        self._window: list[int] = list(tokens.context)
        self._shown = len(self._window)

    def push(self, ids: Sequence[int]) -> str:
        """Text that became certain with these ids.

        One id at a time: patience with an unfinished character counts from where it began, not
        from where the ids happened to be cut.
        """
        pieces = []
        for token in ids:
            self._window.append(token)
            pieces.append(self._advance(final=False))
        return "".join(pieces)

    def flush(self) -> str:
        """The rest, with U+FFFD for a character that was cut."""
        return self._advance(final=True)

    def _advance(self, *, final: bool) -> str:
        before = self._tokens.decode(self._window[: self._shown])
        text = self._tokens.decode(self._window)
        waiting = len(self._window) - self._shown
        if text.endswith("\ufffd") and waiting < _PATIENCE and not final:
            return ""
        self._window = self._window[self._shown :] or self._window
        self._shown = len(self._window)
        return text[len(before) :]

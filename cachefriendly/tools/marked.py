"""Replies whose calls begin with one of a few marker texts: what is common to their parsers."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence

from cachefriendly.tools.stream import THINK, ReadCall, Reasoning, ReplyParser, held_back

__all__ = ["MarkedParser"]


class MarkedParser(ReplyParser):
    """Text outside the calls is content, whitespace before structure and between calls is not.

    ``opens`` are the texts that begin a call, ``drops`` structure around calls and text that
    carries nothing: it never reaches the content. Of two that begin alike the longer is meant.
    """

    def __init__(
        self,
        *,
        id_seed: str,
        opens: Sequence[str],
        drops: Sequence[str] = (),
        reasoning: Reasoning | None = THINK,
        reasoning_open: bool = False,
    ) -> None:
        super().__init__(id_seed=id_seed, reasoning=reasoning, reasoning_open=reasoning_open)
        self._opens = frozenset(opens)
        self._structure = tuple(sorted({*opens, *drops}, key=len, reverse=True))
        self._finder = re.compile("|".join(map(re.escape, self._structure)))
        self._opened: str | None = None

    @abstractmethod
    def _call(self, final: bool) -> bool:
        """Read on inside the call that ``self._opened`` began; ``self._pending`` is what follows.

        True when the call ended (`_end_call`) and text follows; False when more is needed.
        ``final``: the reply is over, so the call must end.
        """

    def _answer(self, final: bool) -> None:
        more = True
        while more:
            more = self._text(final) if self._opened is None else self._call(final)

    def _text(self, final: bool) -> bool:
        """Consume text up to the next structure; False when there is none."""
        found = self._next_structure(final)
        text = self._pending[: found.start()] if found else self._pending
        if self._seen_call and not self._content:
            text = text.lstrip()
        if found:
            self._emit_text(text.rstrip())
            self._pending = self._pending[found.end() :]
            self._opened = found.group() if found.group() in self._opens else None
            return True
        if final:
            self._emit_text("" if self._seen_call and text.isspace() else text)
            self._pending = ""
            return False
        settled = text[: len(text) - held_back(text, *self._structure)].rstrip()
        self._emit_text(settled)
        self._pending = text[len(settled) :]
        return False

    def _next_structure(self, final: bool) -> re.Match[str] | None:
        """The next opening or dropped text, unless a longer one may still become of it."""
        found = self._finder.search(self._pending)
        if found is None or final:
            return found
        rest = self._pending[found.start() :]
        longer = any(text.startswith(rest) and len(text) > len(rest) for text in self._structure)
        return None if longer else found

    def _end_call(
        self,
        stop: int,
        read: ReadCall,
        *,
        body_start: int = 0,
        whole: bool = True,
        call_id: str = "",
    ) -> bool:
        """Record the call that reaches to ``stop`` in ``self._pending``, and go on behind it."""
        raw = (self._opened or "") + self._pending[body_start:stop]
        self._emit(read, raw, whole=whole, call_id=call_id)
        self._pending = self._pending[stop:]
        self._opened = None
        return True

"""A parser for replies that hold no calls: no tools were offered, or the caller forbade them."""

from __future__ import annotations

from cachefriendly.tools.stream import ReplyParser

__all__ = ["PlainTextParser"]


class PlainTextParser(ReplyParser):
    """Everything behind the reasoning is content, exactly as generated."""

    def _answer(self, final: bool) -> None:
        self._emit_text(self._pending)
        self._pending = ""

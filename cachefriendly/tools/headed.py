"""Calls whose name stands before their arguments: a head, a JSON object, a closing text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from cachefriendly.tools.json_body import JsonBody
from cachefriendly.tools.marked import MarkedParser
from cachefriendly.tools.stream import Reasoning

__all__ = ["HeadedParser"]


class HeadedParser(MarkedParser):
    """The head of a call reaches to the first brace, its body from there to the closing text.

    ``OPEN`` begins a call, ``CLOSES`` end it, the texts of ``STOPS`` end it where its close is
    missing. ``DROPS`` are structure around calls. All of them are structure wherever they stand.
    """

    OPEN: ClassVar[str]
    CLOSES: ClassVar[tuple[str, ...]]
    STOPS: ClassVar[tuple[str, ...]]
    DROPS: ClassVar[tuple[str, ...]]

    def __init__(
        self, *, id_seed: str, reasoning: Reasoning | None, reasoning_open: bool = False
    ) -> None:
        super().__init__(
            id_seed=id_seed,
            opens=(self.OPEN,),
            drops=(*self.CLOSES, *self.DROPS),
            reasoning=reasoning,
            reasoning_open=reasoning_open,
        )
        self._body: tuple[int, JsonBody] | None = None

    @abstractmethod
    def _read(self, head: str, body: str) -> tuple[str, Mapping[str, Any]]:
        """Name and arguments; raises `BrokenCall`."""

    def _written_id(self, head: str) -> str:
        """The id that the model gave the call; "" for none."""
        return ""

    def _call(self, final: bool) -> bool:
        if self._body is None:
            start = self._head_end(final)
            if start is None:
                return False
            self._body = start, JsonBody(self.CLOSES, self.STOPS, start=start)
        start, body = self._body
        end = body.find(self._pending, final)
        if end is None:
            return False
        head, text = self._pending[:start], self._pending[start : end.body]
        self._body = None
        return self._end_call(
            end.call,
            lambda: self._read(head, text),
            whole=end.whole,
            call_id=self._written_id(head),
        )

    def _head_end(self, final: bool) -> int | None:
        """Where the arguments begin, or the call ends without any."""
        ends: Sequence[str] = ("{", *self.CLOSES, *self.STOPS)
        places = [at for text in ends if (at := self._pending.find(text)) >= 0]
        if places:
            return min(places)
        return len(self._pending) if final else None

"""Read calls written as JSON behind an opening text: one object, several, or a list of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from cachefriendly.tools.call_json import BrokenCall, read_call
from cachefriendly.tools.json_scan import JsonScanner
from cachefriendly.tools.marked import MarkedParser
from cachefriendly.tools.stream import THINK, Reasoning, held_back

__all__ = ["JsonBlockParser"]

_BETWEEN = " \t\r\n,;"
_NO_ARGUMENTS = re.compile(r'(?:null|"")\s*$')


class JsonBlockParser(MarkedParser):
    """Behind an opening text: a head without braces, then JSON objects, perhaps in a list.

    A blank head: each object is a whole call (`_read_item`), and ``several`` may follow each
    other. Any other head is about the one call whose arguments the object is (`_read_named`). A
    block ends at a text of ``closes``, or where neither JSON nor such a text follows; a closing
    text inside a JSON string belongs to the string, unless the JSON never becomes whole. Each
    call is complete with its own brace.
    """

    def __init__(
        self,
        *,
        id_seed: str,
        opens: Sequence[str],
        closes: Sequence[str] = (),
        drops: Sequence[str] = (),
        several: bool = True,
        reasoning: Reasoning | None = THINK,
        reasoning_open: bool = False,
    ) -> None:
        super().__init__(
            id_seed=id_seed,
            opens=opens,
            drops=drops,
            reasoning=reasoning,
            reasoning_open=reasoning_open,
        )
        self._closes = tuple(closes)
        self._several = several
        self._enders = tuple(sorted({*self._structure, *closes}, key=len, reverse=True))
        self._ends = re.compile("|".join(map(re.escape, self._enders)))
        self._firsts = frozenset(text[0] for text in self._enders)
        self._start_block()

    def _start_block(self) -> None:
        self._phase: Literal["head", "value", "between", "broken"] = "head"
        self._head = ""
        self._scanner = JsonScanner(arrays=True)
        self._at = self._settled = self._item = 0
        self._in_list = False
        self._items = 0

    def _read_item(self, text: str) -> tuple[str, dict[str, Any]]:
        """The call in one JSON object."""
        return read_call(text)

    def _read_named(self, head: str, text: str) -> tuple[str, dict[str, Any]]:
        """The call of a head and the text behind it; blank where the head stands alone."""
        raise BrokenCall("a tool call must be a JSON object")

    def _written_id(self, head: str, text: str) -> str:
        """The id that the model wrote for the call; "" for none."""
        return ""

    def _call(self, final: bool) -> bool:
        steps = {
            "head": self._find_value,
            "value": self._scan_value,
            "between": self._find_next,
            "broken": self._find_end,
        }
        while True:
            before = self._phase, self._at
            ended = steps[self._phase](final)
            if ended or self._opened is None:
                return True
            if (self._phase, self._at) == before:
                return final and self._end_block(len(self._pending), len(self._pending))

    def _find_value(self, final: bool) -> bool:
        brace = self._pending.find("{")
        end = self._ends.search(self._pending, 0, brace if brace >= 0 else len(self._pending))
        if end is not None:
            return self._end_at(end)
        if brace >= 0:
            head = self._pending[:brace]
            self._in_list = head.strip() == "["
            self._head = "" if self._in_list else head
            self._at = head.index("[") if self._in_list else brace
            self._phase = "value"
        return False

    def _scan_value(self, final: bool) -> bool:
        text, scanner = self._pending, self._scanner
        while self._at < len(text) and scanner.status == "more":
            if not scanner.in_string and text[self._at] in self._firsts:
                if not final and self._undecided(text[self._at :]):
                    return False
                end = self._ends.match(text, self._at)
                if end is not None:
                    return self._end_at(end)
            self._push(text[self._at])
        if scanner.status == "done":
            self._phase = "between"
        elif scanner.status == "bad" or final:
            self._phase = "broken"
            self._at = self._settled
        return False

    def _push(self, char: str) -> None:
        """Scan a character; an object that it closes is a call, if it is not part of another."""
        scanner, outermost = self._scanner, int(self._in_list)
        if char == "{" and not scanner.in_string and scanner.depth == outermost:
            self._item = self._at
        inside = not scanner.in_string and scanner.depth == outermost + 1
        scanner.push(char)
        self._at += 1
        if inside and char == "}" and scanner.status != "bad":
            self._end_item(self._pending[self._item : self._at])

    def _end_item(self, text: str) -> None:
        head = self._head
        named = bool(head.strip())
        self._emit(
            lambda: self._read_named(head, text) if named else self._read_item(text),
            head + text,
            call_id=self._written_id(head, text),
        )
        self._items += 1
        self._settled = self._at

    def _find_next(self, final: bool) -> bool:
        """Behind a whole value: the closing text, one more value, or the end of the block."""
        rest = self._pending[self._at :].lstrip(_BETWEEN)
        at = len(self._pending) - len(rest)
        several = self._several and not self._head.strip()
        if not final and (several or self._closes) and self._undecided(rest):
            return False
        end = self._ends.match(self._pending, at)
        if end is not None:
            return self._end_at(end)
        if several and rest[:1] in ("{", "["):
            self._scanner, self._in_list = JsonScanner(arrays=True), rest[0] == "["
            self._at, self._phase = at, "value"
            return False
        return self._end_block(self._at, self._at)

    def _find_end(self, final: bool) -> bool:
        """The JSON is broken: the next structure ends it, also inside what looks like a string."""
        end = self._ends.search(self._pending, self._at)
        if end is not None:
            return self._end_at(end)
        return final and self._end_block(len(self._pending), len(self._pending), whole=False)

    def _undecided(self, rest: str) -> bool:
        """Whether all of ``rest`` may be the beginning of structure."""
        return held_back(rest, *self._enders) == len(rest)

    def _end_at(self, end: re.Match[str]) -> bool:
        closed = end.group() in self._closes
        return self._end_block(end.start(), end.end() if closed else end.start())

    def _end_block(self, stop: int, next_start: int, *, whole: bool = True) -> bool:
        """Record what no call was made of, and go on behind the block."""
        rest = self._pending[self._settled : stop]
        if not self._items or (self._phase != "between" and rest.strip(_BETWEEN + "]")):
            opened = "" if self._items else self._opened or ""
            raw = opened + self._pending[self._settled : next_start]
            self._emit(lambda: self._read_rest(rest, closed=next_start > stop), raw, whole=whole)
        self._pending = self._pending[next_start:]
        self._opened = None
        self._start_block()
        return True

    def _read_rest(self, rest: str, *, closed: bool) -> tuple[str, dict[str, Any]]:
        head = self._head
        if self._phase == "head":
            nothing = _NO_ARGUMENTS.search(rest)
            head = rest[: nothing.start()] if nothing else rest if closed else ""
        if head.strip():
            return self._read_named(head, rest[len(head) :])
        return self._read_item(rest)

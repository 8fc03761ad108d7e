"""The dialect of Functionary 3.2: ``>>>`` and a recipient, ``all`` for text, before each part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cachefriendly.messages import Tool
from cachefriendly.tools.block_dialect import BlockDialect
from cachefriendly.tools.call_json import BrokenCall, read_arguments
from cachefriendly.tools.call_text import CallText
from cachefriendly.tools.json_blocks import JsonBlockParser
from cachefriendly.tools.stream import ReplyParser

__all__ = ["FunctionaryDialect", "FunctionaryParser"]

OPEN, TO_ALL = ">>>", "all\n"
_TEXT = CallText(before_name="", after_name="\n", between=OPEN)
_CALL = re.compile(r"[\w.-]*(\n\s*(\{.*)?)?", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class FunctionaryDialect(BlockDialect):
    """The generation prompt ends with the first ``>>>``, so a reply begins with a recipient."""

    name: str = "functionary_v3_2"
    structure: tuple[str, ...] = (TO_ALL,)
    opens: tuple[str, ...] = (OPEN,)
    several: bool = False
    tells: tuple[str, ...] = (">>>all\\n", ">>>")
    text: CallText = _TEXT

    def parser(
        self, *, id_seed: str, tools: Sequence[Tool] = (), reasoning_open: bool = False
    ) -> ReplyParser:
        """A parser for one reply. A recipient says what a call is, so tools are not needed."""
        return FunctionaryParser(id_seed=id_seed, opens=(OPEN,), several=False, reasoning=None)

    def text_parser(self, *, id_seed: str, reasoning_open: bool = False) -> ReplyParser:
        """Text follows its recipient here too."""
        return self.parser(id_seed=id_seed)


class FunctionaryParser(JsonBlockParser):
    """A reply that does not begin with a recipient is text as it is."""

    def _start_block(self) -> None:
        super()._start_block()
        if not self._seen_call and not self._content:
            self._opened = self._opened or ""

    def _find_value(self, final: bool) -> bool:
        text = self._pending
        if text.startswith(TO_ALL):
            self._pending, self._opened = text.removeprefix(TO_ALL), None
        elif not final and TO_ALL.startswith(text):
            return False
        elif self._opened == "" and not (_CALL.fullmatch(text) and ("{" in text or not final)):
            self._opened = None
        return self._opened is None or super()._find_value(final)

    def _read_named(self, head: str, text: str) -> tuple[str, dict[str, Any]]:
        name, _, rest = head.partition("\n")
        if not name.strip() or rest.strip():
            raise BrokenCall("no recipient stands before the arguments")
        return name.strip(), read_arguments(text, name.strip())

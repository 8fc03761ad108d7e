"""How a dialect spells calls whose arguments stand one by one, each behind its key."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cachefriendly.messages import ToolCall

__all__ = ["TagText", "spelled_value"]

_CDATA = "<![CDATA["
_UNNAMEABLE = re.compile(r'[<>{}"\n]')


@dataclass(frozen=True, slots=True)
class TagText:
    """The texts around names, keys and values, with their line breaks.

    ``begin`` ``call_open`` name ``name_end`` [``key_open`` key ``key_end`` value ``value_end``]...
    ``call_end`` ``end``. ``shared``: one ``begin`` and ``end`` around all calls of a reply, else
    around each, with ``between`` between them. Without ``begin`` a call begins with ``call_open``.
    ``cdata``: text that holds markup is written as a CDATA section.
    """

    call_open: str
    name_end: str
    key_open: str
    key_end: str
    value_end: str
    begin: str = ""
    call_end: str = ""
    end: str = ""
    between: str = "\n"
    shared: bool = False
    cdata: bool = False

    @property
    def opens(self) -> str:
        """The structure that begins a block."""
        return self.begin.strip() or self.call_open.strip()

    @property
    def closes(self) -> str:
        """The structure that ends a block."""
        return self.end.strip() or self.call_end.strip()

    @property
    def markers(self) -> tuple[str, ...]:
        """All the texts that are structure, without line breaks."""
        texts = (
            self.begin, self.call_open, self.name_end, self.key_open, self.key_end,
            self.value_end, self.call_end, self.end,
        )  # fmt: skip
        pieces = [piece for text in texts for piece in text.split("\n")]
        return tuple(dict.fromkeys(piece for piece in pieces if len(piece) > 2))

    def render(self, calls: Sequence[ToolCall]) -> str:
        """The calls as a model is trained to write them."""
        texts = [self._call(call) for call in calls]
        if self.shared:
            return self.begin + "".join(texts) + self.end
        return self.between.join(self.begin + text + self.end for text in texts)

    def _call(self, call: ToolCall) -> str:
        arguments = "".join(
            f"{self.key_open}{key}{self.key_end}{spelled_value(value)}{self.value_end}"
            for key, value in call.arguments.items()
        )
        return f"{self.call_open}{call.name}{self.name_end}{arguments}{self.call_end}"

    def call_pattern(self) -> re.Pattern[str]:
        """Finds the beginning of a call; group 1 is its name."""
        end = _loose(self.name_end.strip() or self.key_open)
        if not self.name_end.strip():
            end = rf"(?={end}|$)"
        name = r'([^\s<>{}"][^<>{}"\n]*?)'
        return re.compile(rf"{_loose(self.call_open)}\s*{name}\s*{end}")

    def argument_pattern(self) -> re.Pattern[str]:
        """Finds an argument; group 1 is its key, group 2 the value with the breaks around it."""
        close = _loose(self.value_end)
        follows = rf"(?=\s*(?:{_loose(self.key_open)}|{_loose(self.call_end)}|$))"
        if not self.call_end:
            follows = rf"(?=\s*(?:{_loose(self.key_open)}|$))"
        key = rf"{_loose(self.key_open)}([^<>\n]*?){_loose(self.key_end)}"
        return re.compile(rf"{key}(.*?){close}{follows}", re.DOTALL)

    def can_name(self, *names: str) -> bool:
        """Whether names of tools and arguments stand between the tags as they are."""
        return all(name and name == name.strip() and not _UNNAMEABLE.search(name) for name in names)

    @property
    def avoided(self) -> tuple[str, ...]:
        """Texts that no value holds in a forced call: they end it, or look like more structure."""
        texts = (self.value_end.strip(), self.key_open, *((_CDATA,) if self.cdata else ()))
        return tuple(dict.fromkeys(texts))

    def can_hold(self, value: str) -> bool:
        """Whether a text may stand as a value without being taken for structure."""
        return not any(text in value for text in self.avoided)

    def swallows(self, value: str) -> bool:
        """Whether a value as it stands begins more arguments than it ends: its own end is missing.

        Text may hold whole arguments, and in a CDATA section anything.
        """
        if self.cdata and value.startswith(_CDATA):
            return False
        key = rf"{_loose(self.key_open)}[^<>\n]*?{_loose(self.key_end)}"
        return len(re.findall(key, value)) > len(re.findall(_loose(self.value_end), value))

    def value(self, text: str) -> str:
        """A value without the line breaks that belong to the tags."""
        if self.key_end.endswith("\n"):
            text = text.removeprefix("\n")
        if self.cdata and text.startswith(_CDATA) and text.endswith("]]>"):
            return text[len(_CDATA) : -3]
        return text.removesuffix("\n") if self.value_end.startswith("\n") else text


def spelled_value(value: Any) -> str:
    """A value between tags: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _loose(text: str) -> str:
    """A pattern for ``text``, with any whitespace where it has line breaks inside."""
    return r"\s*".join(re.escape(piece) for piece in text.strip().split("\n"))

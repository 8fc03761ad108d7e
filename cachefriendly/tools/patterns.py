"""A schema's pattern as a regular expression of whole texts, in the syntax of llguidance.

Anchors get their meaning for each alternative, and what other engines read differently (classes,
a dot) is made narrower: a text is admitted where ECMA 262 and Python agree that the pattern
matches it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["whole_text"]

_ANYTHING = "(?s:.)*"
_LINE = r"[^\n\r\u2028\u2029]"
_NARROW = {
    "d": "[0-9]", "D": r"[^\d]", "w": "[0-9A-Za-z_]", "W": r"[^\w\p{No}]",
    "s": r"[\s--\x85]", "S": r"[^\s\x1c-\x1f\ufeff]",
}  # fmt: skip
# What a class of other characters must leave out.
_WIDE = {
    "d": r"\d", "D": "[^0-9]", "w": r"[\w\p{No}]", "W": "[^0-9A-Za-z_]",
    "s": r"[\s\x1c-\x1f\ufeff]", "S": r"[^\s--\x85]",
}  # fmt: skip
_SPECIAL = frozenset(r".^$*+?()[]{}|\/-&~#")
_CONTROL = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_GROUP = re.compile(r"\((?:\?(?::|P?<[A-Za-z_]\w*>))?(?!\?)")
_REPEAT = re.compile(r"([*+?]|\{\d+(?:,\d*)?\})\??(?![*+?]|\{\d)")
_CODE = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]+\}|[tnrfv]|[pP]\{\w+\})")


@dataclass(frozen=True, slots=True)
class _Group:
    ways: list[list[_Item]]


_Item: TypeAlias = str | _Group


def whole_text(pattern: str) -> str:
    """An expression that matches no more than the whole texts in which ``pattern`` is found.

    Raises:
        ValueError: says what in the pattern cannot be followed.
    """
    reader = _Reader(pattern)
    ways = reader.ways()
    if reader.at < len(pattern):
        raise ValueError("a closing parenthesis without its opening one")
    return _outer(ways)


def _outer(ways: list[list[_Item]]) -> str:
    return "|".join(map(_found, ways))


def _found(way: list[_Item]) -> str:
    """One alternative: found anywhere in the text, unless it is anchored."""
    if len(way) == 1 and isinstance(way[0], _Group):
        return f"(?:{_outer(way[0].ways)})"
    start, end = way[:1] == ["^"], way[-1:] == ["$"]
    body = way[int(start) : len(way) - int(end)]
    text = "".join(map(_inner, body))
    return f"{'' if start else _ANYTHING}{text}{'' if end else _ANYTHING}"


def _inner(item: _Item) -> str:
    if isinstance(item, _Group):
        return f"(?:{'|'.join(''.join(map(_inner, way)) for way in item.ways)})"
    if item in ("^", "$"):
        raise ValueError(f"{item} in the middle")
    return item


class _Reader:
    """A recursive descent over one pattern."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0

    def ways(self) -> list[list[_Item]]:
        """The alternatives up to a closing parenthesis or the end."""
        ways: list[list[_Item]] = [[]]
        while self.at < len(self._text) and (next_ := self._text[self.at]) != ")":
            if next_ == "|":
                ways.append([])
                self.at += 1
            else:
                ways[-1].append(self._group() if next_ == "(" else self._item(next_))
        return ways

    def _group(self) -> _Group:
        if not self._takes(_GROUP):
            raise ValueError("(? as it stands here (a look around, a flag)")
        group = _Group(self.ways())
        if self._text[self.at : self.at + 1] != ")":
            raise ValueError("a parenthesis that is not closed")
        self.at += 1
        return group

    def _item(self, character: str) -> str:
        if character == "[":
            return self._class()
        if character == "\\":
            return self._escape(_NARROW)
        if character in "*+?" or _REPEAT.match(self._text, self.at):
            found = self._takes(_REPEAT)
            if not found:
                raise ValueError("a repetition of a repetition")
            return found[1]
        self.at += 1
        if character in "^$":
            return character
        return _LINE if character == "." else _literal(character)

    def _escape(self, classes: dict[str, str]) -> str:
        if found := self._takes(_CODE):
            return found.group()
        character = self._text[self.at + 1 : self.at + 2]
        self.at += 2
        if character in classes:
            return classes[character]
        if not character or (character.isalnum() and character.isascii()):
            raise ValueError(f"\\{character}")
        return _literal(character)

    def _class(self) -> str:
        """A set of characters; inside, brackets and pairs of signs are no sets of sets."""
        self.at += 1
        negated = self._text.startswith("^", self.at)
        self.at += int(negated)
        members: list[str] = []
        while (character := self._text[self.at : self.at + 1]) != "]":
            if not character:
                raise ValueError("a class that is not closed")
            members.append(self._range(_WIDE if negated else _NARROW))
        self.at += 1
        if not members:
            raise ValueError("an empty class")
        return f"[{'^' if negated else ''}{''.join(members)}]"

    def _range(self, classes: dict[str, str]) -> str:
        low = self._member(classes)
        more = self._text[self.at : self.at + 2]
        if more[:1] != "-" or more[1:] in ("]", ""):
            return low
        self.at += 1
        high = self._member(classes)
        if low in classes.values() or high in classes.values():
            raise ValueError("a range between classes")
        return f"{low}-{high}"

    def _member(self, classes: dict[str, str]) -> str:
        character = self._text[self.at]
        if character == "\\":
            return self._escape(classes)
        self.at += 1
        return _literal(character)

    def _takes(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        found = expression.match(self._text, self.at)
        self.at = found.end() if found else self.at
        return found


def _literal(character: str) -> str:
    if character in _CONTROL:
        return _CONTROL[character]
    return f"\\{character}" if character in _SPECIAL else character

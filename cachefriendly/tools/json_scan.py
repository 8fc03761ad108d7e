"""Follow JSON text character by character: is it whole, may it go on, or is it already broken?"""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["JsonScanner", "ScanStatus", "json_objects"]

ScanStatus: TypeAlias = Literal["more", "done", "bad"]

_SCALAR = frozenset("+-.0123456789eEtruefalsn")
_SPACE = frozenset(" \t\n\r")
_SEPARATORS = " \t\n\r,;"


class JsonScanner:
    """A push-down automaton over one JSON object (``arrays``: or one array).

    ``status`` is ``"more"`` while the text is the beginning of an object, ``"done"`` once the
    object is closed (whitespace may follow) and ``"bad"`` when no continuation can repair it.
    Spelling inside strings and scalars is not checked: that is the parser's job once it is done.
    """

    def __init__(self, *, arrays: bool = False) -> None:
        self._arrays = arrays
        self.status: ScanStatus = "more"
        self.in_string = False
        self._escaped = False
        self._in_scalar = False
        self._closers: list[str] = []
        self._expect: Literal["value", "key", "colon", "comma"] = "value"
        self._may_close = False

    @property
    def depth(self) -> int:
        """How many objects and arrays are open."""
        return len(self._closers)

    def push(self, char: str) -> None:
        """Take the next character."""
        if self.status != "more":
            if char not in _SPACE:
                self.status = "bad"
        elif self.in_string:
            self._push_string(char)
        elif self._in_scalar and char in _SCALAR:
            pass
        elif char in _SPACE:
            self._in_scalar = False
        else:
            self._in_scalar = False
            if not self._push_structure(char):
                self.status = "bad"

    def _push_string(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self.in_string = False

    def _push_structure(self, char: str) -> bool:
        if char in "}]":
            return self._close(char)
        if self._expect == "colon":
            self._expect = "value"
            return char == ":"
        if self._expect == "comma":
            self._expect = "key" if self._closers[-1] == "}" else "value"
            return char == ","
        if self._expect == "key":
            self.in_string = char == '"'
            self._expect, self._may_close = "colon", False
            return self.in_string
        return self._open_value(char)

    def _open_value(self, char: str) -> bool:
        if char in "{[":
            self._closers.append("}" if char == "{" else "]")
            self._expect = "key" if char == "{" else "value"
            self._may_close = True
            return char == "{" or self._arrays or len(self._closers) > 1
        self._expect, self._may_close = "comma", False
        self.in_string = char == '"'
        self._in_scalar = char in _SCALAR
        return bool(self._closers) and (self.in_string or self._in_scalar)

    def _close(self, char: str) -> bool:
        if not self._closers or not (self._may_close or self._expect == "comma"):
            return False
        if self._closers.pop() != char:
            return False
        self._expect, self._may_close = "comma", False
        if not self._closers:
            self.status = "done"
        return True


def json_objects(text: str) -> list[str] | None:
    """The objects in a text of nothing but objects and separators; the last may be broken.

    None when the text does not begin with one.
    """
    objects: list[str] = []
    rest = text.strip(_SEPARATORS)
    while rest.startswith("{"):
        scanner, size = JsonScanner(), 0
        while size < len(rest) and scanner.status == "more":
            scanner.push(rest[size])
            size += 1
        if scanner.status != "done":
            break
        objects.append(rest[:size])
        rest = rest[size:].strip(_SEPARATORS)
    if rest and (objects or rest.startswith("{")):
        objects.append(rest)
    return objects or None

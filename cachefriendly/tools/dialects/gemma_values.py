"""Gemma 4's way to write values: like JSON, with bare keys and strings between ``<|"|>``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from cachefriendly.messages import MAX_JSON_DEPTH
from cachefriendly.tools.call_json import BrokenCall, read_json

__all__ = ["QUOTE", "read_object", "written"]

QUOTE = '<|"|>'
_SPACE = re.compile(r"\s*")
_SCALAR = re.compile(r"[^\s,:{}\[\]<\"]+")
_KEY = re.compile(r"[^:{}\[\],\"]+(?=:)")
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NAMES = {"None": None, "True": True, "False": False}


def written(value: Any) -> str:
    """A value as the model writes it; keys keep their order."""
    if isinstance(value, str):
        return f"{QUOTE}{value}{QUOTE}"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value)


def read_object(text: str, name: str) -> dict[str, Any]:
    """The object that ``text`` is; keys may be bare or quoted, quotes ``<|"|>`` or JSON's.

    Raises:
        BrokenCall: with the reason and ``name``; nothing else is ever raised, whatever the text.
    """
    reader = _Reader(text, name)
    if not text.lstrip().startswith("{"):
        raise reader.broken("an object")
    value = reader.value(0)
    reader.skip()
    if reader.at < len(text):
        raise reader.broken("nothing more")
    result: dict[str, Any] = value
    return result


class _Reader:
    """A recursive descent over one text."""

    def __init__(self, text: str, name: str) -> None:
        self.at = 0
        self._text = text
        self._name = name

    def broken(self, wanted: str) -> BrokenCall:
        return BrokenCall(f"malformed arguments: {wanted} expected at {self.at}", self._name)

    def skip(self) -> None:
        found = _SPACE.match(self._text, self.at)
        self.at = found.end() if found else self.at

    def value(self, depth: int) -> Any:
        if depth > MAX_JSON_DEPTH:
            raise BrokenCall("the arguments are nested too deeply", self._name)
        self.skip()
        if self._takes("{"):
            return dict(self._items("}", lambda: self._pair(depth)))
        if self._takes("["):
            return self._items("]", lambda: self.value(depth + 1))
        text = self._string()
        return self._scalar() if text is None else text

    def _items(self, close: str, item: Callable[[], Any]) -> list[Any]:
        items: list[Any] = []
        self.skip()
        if self._takes(close):
            return items
        while True:
            items.append(item())
            self.skip()
            if self._takes(close):
                return items
            if not self._takes(","):
                raise self.broken(f"a comma or {close}")

    def _pair(self, depth: int) -> tuple[str, Any]:
        self.skip()
        key = self._string()
        if key is None:
            found = _KEY.match(self._text, self.at)
            if found is None:
                raise self.broken("a key")
            key, self.at = found.group().strip(), found.end()
        self.skip()
        if not self._takes(":"):
            raise self.broken("a colon")
        return key, self.value(depth + 1)

    def _string(self) -> str | None:
        if self._takes(QUOTE):
            stop = self._text.find(QUOTE, self.at)
            if stop < 0:
                raise self.broken("the end of a string")
            text, self.at = self._text[self.at : stop], stop + len(QUOTE)
            return text
        found = _JSON_STRING.match(self._text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return str(read_json(found.group(), self._name))

    def _scalar(self) -> Any:
        found = _SCALAR.match(self._text, self.at)
        if found is None:
            raise self.broken("a value")
        text = found.group()
        value = _NAMES[text] if text in _NAMES else read_json(text, self._name)
        self.at = found.end()
        return value

    def _takes(self, text: str) -> bool:
        if not self._text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

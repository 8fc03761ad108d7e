"""The dialect of Llama 3: JSON with ``parameters``, or code behind ``<|python_tag|>``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cachefriendly.tools.call_json import BrokenCall, read_call
from cachefriendly.tools.call_text import CallText
from cachefriendly.tools.dialects.plain_json import BareJsonDialect, PlainJsonParser
from cachefriendly.tools.json_scan import json_objects
from cachefriendly.tools.python_calls import read_python_calls
from cachefriendly.tools.stream import held_back

__all__ = ["PYTHON_TAG", "Llama3Dialect", "Llama3Parser"]

PYTHON_TAG = "<|python_tag|>"
_TEXT = CallText(
    before_name='{"name": "',
    after_name='", "parameters": ',
    after_arguments="}",
    between="; ",
    quoted=True,
)
_CODE_TOOLS = ("code_interpreter", "ipython", "python")


class Llama3Parser(PlainJsonParser):
    """Plain JSON calls, and behind the tag: objects, ``name.call(key="value")``, or code.

    Code is a call of the offered tool that runs code (``code_interpreter``, ``ipython`` or
    ``python``), with the code as ``code``. All calls behind the tag are out at the reply's end.
    """

    def _text(self, final: bool) -> None:
        text, tag, _ = self._pending.partition(PYTHON_TAG)
        if tag:
            self._emit_text(text.rstrip())
            self._pending = self._pending[len(text) :]
            if final:
                self._behind_tag(self._pending[len(PYTHON_TAG) :])
                self._pending = ""
            return
        if final:
            super()._text(final)
            return
        settled = text[: len(text) - held_back(text, PYTHON_TAG)].rstrip()
        self._emit_text(settled)
        self._pending = text[len(settled) :]

    def _behind_tag(self, code: str) -> None:
        for raw, outcome in self._read_code(code):
            self._emit_outcome(outcome, raw)

    def _read_code(self, code: str) -> list[tuple[str, tuple[str, Mapping[str, Any]] | BrokenCall]]:
        """The calls, each with its text, or why there is none."""
        raw = PYTHON_TAG + code
        objects = json_objects(code)
        if objects is not None:
            return [(text, _tried(text)) for text in objects]
        runner = next((name for name in _CODE_TOOLS if name in self._names), None)
        try:
            calls = read_python_calls(code)
            if runner is None or all(name in self._names for name, _ in calls):
                return [(raw, call) for call in calls]
        except BrokenCall as problem:
            if runner is None:
                return [(raw, problem)]
        return [(raw, (runner, {"code": code.strip()}))]


def _tried(text: str) -> tuple[str, Mapping[str, Any]] | BrokenCall:
    try:
        return read_call(text)
    except BrokenCall as problem:
        return problem


@dataclass(frozen=True, kw_only=True)
class Llama3Dialect(BareJsonDialect):
    """A reply is text, or one or more objects, or what stands behind the tag."""

    name: str = "llama3"
    structure: tuple[str, ...] = (PYTHON_TAG, "<|eom_id|>")
    stops: tuple[str, ...] = ("<|eom_id|>",)
    tells: tuple[str, ...] = ('"parameters": ', "ipython")
    text: CallText = _TEXT
    reader: type[PlainJsonParser] = Llama3Parser

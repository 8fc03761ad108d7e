"""A tokenizer's response template: transformers' own description of what a reply consists of.

transformers 5.24 and later.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Mapping
from typing import Any

from cachefriendly.tools.stream import Reasoning

__all__ = ["CALLS", "CONTENT", "ResponseTemplate"]

CONTENT, CALLS = "content", "tool_calls"
REASONING = ("reasoning_content", "reasoning", "thinking")
_PACKAGE = "transformers.utils.chat_parsing"


class ResponseTemplate:
    """A tokenizer's response template, split into regions (transformers' work) and values.

    Raises at construction:
        ValueError: transformers refuses it, is too old, or it has regions of another kind.
    """

    def __init__(self, source: Mapping[str, Any]) -> None:
        try:
            regions = importlib.import_module(f"{_PACKAGE}.response_parser")
            templates = importlib.import_module(f"{_PACKAGE}.response_templates")
            values = importlib.import_module(f"{_PACKAGE}.content_parsers")
        except ImportError:
            raise ValueError("this release of transformers knows no response templates") from None
        self._make, self._process = regions.ResponseParser, values.process_field
        self.fields = templates.load_response_template(dict(source)).fields
        odd = sorted(set(self.fields) - {CONTENT, CALLS, *REASONING})
        if odd or CALLS not in self.fields or self.fields[CALLS].open_re is None:
            raise ValueError(f"it has regions {odd}" if odd else "it has no region for calls")
        self._regions = templates.load_response_template(_with_bare_regions(source, self.fields))
        thoughts = [name for name in REASONING if name in self.fields]
        self.thought: str | None = thoughts[0] if thoughts else None
        self.reasoning = self._reasoning()

    def _reasoning(self) -> Reasoning | None:
        if self.thought is None:
            return None
        field = self.fields[self.thought]
        if not field.open_literals or not field.close_literals:
            raise ValueError("its reasoning is not told by texts but by patterns")
        return Reasoning(field.open_literals[0].rstrip(), field.close_literals[0].strip())

    def parser(self, *, reasoning_open: bool = False) -> Any:
        """A parser of regions at the start of a reply, or inside its reasoning."""
        opened = reasoning_open and self.thought is not None
        prefix = self.fields[self.thought].open_literals[0] if opened else ""
        return self._make(self._regions, prefix=prefix)

    def call(self, value: Mapping[str, str]) -> Any:
        """What the template makes of a call's region; raises whatever transformers raises."""
        captures = {name: text for name, text in value.items() if name != "content"}
        return self._process(value["content"], self.fields[CALLS], captures)

    def end_of_call(self, text: str, body: str) -> int:
        """Where the call ends that is the first in ``text``."""
        field = self.fields[CALLS]
        opening = field.open_re.search(text)
        start = (opening.end() if opening else text.find(body)) + len(body)
        closing = field.close_re.match(text, start) if field.close_re is not None else None
        return int(closing.end() if closing else start)


def _with_bare_regions(source: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The template with every region as exact text, and what its patterns capture."""
    bare = copy.deepcopy(dict(source))
    for name, field in bare["fields"].items():
        for key in ("content", "content_args", "transform", "transform_each", "join"):
            field.pop(key, None)
        field.update(content="text", content_args={"strip": False}, optional=True, repeats=True)
        patterns = (fields[name].open_re, fields[name].close_re)
        groups = [group for pattern in patterns if pattern for group in pattern.groupindex]
        if name == CALLS or groups:
            field["transform"] = {key: f"{{{key}}}" for key in ("content", *groups)}
    return bare

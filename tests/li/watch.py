"""Watches an engine: what its reports say, and what really enters the model's embedding."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from cachefriendly.events import CacheReport
from cachefriendly.testing import EmbeddingCount, byte_tokenizer, templates
from cachefriendly.testing.tokenizer import END_ID

__all__ = ["TOKENIZER", "Watch", "call_text", "ids_of"]

TOKENIZER = byte_tokenizer(templates.NATIVE_TOOLS)


def ids_of(text: str) -> list[int]:
    """A reply as a script: the ids of a text and the stop token."""
    return [*TOKENIZER(text).input_ids, END_ID]


def call_text(name: str, arguments: str) -> str:
    """A tool call as a model writes it; ``arguments`` is JSON."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


class Watch:
    """Reports of the calls made while it watches, and what entered the embedding meanwhile."""

    def __init__(self, engine: Any, seen: EmbeddingCount) -> None:
        self._engine = engine
        self.seen = seen
        self._first = len(engine.reports())

    @property
    def reports(self) -> list[CacheReport]:
        return list(self._engine.reports()[self._first :])

    def check_warm(self, calls: int) -> None:
        """Each call but the first prefills exactly what the one before did not leave behind."""
        reports = self.reports
        assert len(reports) == calls
        for before, after in pairwise(reports):
            # The last id a call generates (a stop token, or one at the limit) is never forwarded.
            held = before.prompt_tokens + before.generated_tokens - 1
            assert after.reused_tokens == held
            assert after.prefilled_tokens == after.prompt_tokens - held
        fed_back = sum(report.generated_tokens - 1 for report in reports)
        forwarded = sum(report.prefilled_tokens for report in reports) + fed_back
        assert self.seen.tokens == forwarded == sum(r.forwarded_tokens for r in reports)

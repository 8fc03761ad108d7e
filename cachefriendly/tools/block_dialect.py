"""A dialect whose calls are JSON behind an opening text, as a row of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cachefriendly.messages import Tool
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.call_text import CallText
from cachefriendly.tools.grammar import calls_grammar
from cachefriendly.tools.json_blocks import JsonBlockParser
from cachefriendly.tools.native import FormDialect
from cachefriendly.tools.stream import ReplyParser

__all__ = ["BlockDialect"]


@dataclass(frozen=True, kw_only=True)
class BlockDialect(FormDialect):
    """Texts as data, those of `JsonBlockParser` among them.

    ``inner`` are the markers inside a call.
    """

    text: CallText
    opens: tuple[str, ...]
    closes: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    several: bool = True
    reader: type[JsonBlockParser] = JsonBlockParser

    @property
    def markers(self) -> tuple[str, ...]:
        return (*self._written, *super().markers)

    @property
    def _written(self) -> tuple[str, ...]:
        return (*self.opens, *self.closes, *self.drops, *self.inner)

    def parser(
        self, *, id_seed: str, tools: Sequence[Tool] = (), reasoning_open: bool = False
    ) -> ReplyParser:
        """A parser for one reply. The markers say what a call is, so tools are not needed."""
        return self.reader(
            id_seed=id_seed,
            opens=self.opens,
            closes=self.closes,
            drops=self.drops,
            several=self.several,
            reasoning=self.reasoning,
            reasoning_open=reasoning_open,
        )

    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec:
        """Exactly one call of one of these tools, or one or more of them when ``many``."""
        texts = self._written
        whole = [t for t in texts if not any(other in t for other in texts if other != t)]
        return calls_grammar(tools, self.text, markers=whole, many=many)

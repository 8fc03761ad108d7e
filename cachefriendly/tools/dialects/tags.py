"""Dialects whose arguments stand one by one between tags: only the texts differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cachefriendly.messages import Tool
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.native import FormDialect
from cachefriendly.tools.stream import Reasoning, ReplyParser
from cachefriendly.tools.tag_grammar import tagged_grammar
from cachefriendly.tools.tag_text import TagText
from cachefriendly.tools.tagged import TaggedParser

__all__ = [
    "HUNYUAN",
    "MINICPM",
    "MINIMAX",
    "SEED",
    "TagDialect",
]


@dataclass(frozen=True, kw_only=True)
class TagDialect(FormDialect):
    """Texts as data; arguments stand one by one between tags."""

    text: TagText
    drops: tuple[str, ...] = ()

    @property
    def markers(self) -> tuple[str, ...]:
        return (*self.text.markers, *self.drops, *super().markers)

    def parser(
        self, *, id_seed: str, tools: Sequence[Tool] = (), reasoning_open: bool = False
    ) -> ReplyParser:
        """A parser for one reply; the schemas of ``tools`` say what type an argument has."""
        return TaggedParser(
            self.text,
            tools,
            id_seed=id_seed,
            drops=self.drops,
            reasoning=self.reasoning,
            reasoning_open=reasoning_open,
        )

    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec:
        """Exactly one call of one of these tools, or one or more of them when ``many``."""
        return tagged_grammar(tools, self.text, many=many)


SEED = TagDialect(
    name="seed",
    tells=("seed:tool_call>", "<parameter="),
    text=TagText(
        begin="<seed:tool_call>\n",
        call_open="<function=",
        name_end=">\n",
        key_open="<parameter=",
        key_end=">",
        value_end="</parameter>\n",
        call_end="</function>\n",
        end="</seed:tool_call>",
    ),
)
"""Seed-OSS."""

MINIMAX = TagDialect(
    name="minimax",
    tells=("minimax:tool_call>", "<invoke name="),
    text=TagText(
        begin="<minimax:tool_call>\n",
        call_open='<invoke name="',
        name_end='">\n',
        key_open='<parameter name="',
        key_end='">',
        value_end="</parameter>\n",
        call_end="</invoke>\n",
        end="</minimax:tool_call>",
        shared=True,
    ),
)
"""MiniMax M2."""

MINICPM = TagDialect(
    name="minicpm",
    tells=('<function name="', '<param name="'),
    text=TagText(
        call_open='<function name="',
        name_end='">',
        key_open='<param name="',
        key_end='">',
        value_end="</param>",
        call_end="</function>",
        cdata=True,
    ),
)
"""MiniCPM 5: no block around the functions."""

HUNYUAN = TagDialect(
    reasoning=Reasoning("<think:opensource>", "</think:opensource>"),
    name="hunyuan",
    tells=("<tool_calls{}>", "<tool_sep{}>", "':opensource'"),
    text=TagText(
        begin="<tool_calls:opensource>\n",
        call_open="<tool_call:opensource>",
        name_end="<tool_sep:opensource>\n",
        key_open="<arg_key:opensource>",
        key_end="</arg_key:opensource>\n<arg_value:opensource>",
        value_end="</arg_value:opensource>\n",
        call_end="</tool_call:opensource>\n",
        end="</tool_calls:opensource>",
        shared=True,
    ),
)
"""Hunyuan 3; its tags carry a suffix."""

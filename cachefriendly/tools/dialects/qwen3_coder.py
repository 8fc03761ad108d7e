"""The dialect of Qwen3-Coder, Qwen3.5, Nemotron 3 and others: functions and parameters as tags."""

from __future__ import annotations

from cachefriendly.tools.dialects.tags import TagDialect
from cachefriendly.tools.tag_text import TagText

__all__ = ["QWEN3_CODER"]


QWEN3_CODER = TagDialect(
    name="qwen3_coder",
    structure=("<tool_response>", "</tool_response>"),
    drops=("</tool_call>",),
    tells=("<tool_call>", "<function=", "<parameter="),
    text=TagText(
        begin="<tool_call>\n",
        call_open="<function=",
        name_end=">\n",
        key_open="<parameter=",
        key_end=">\n",
        value_end="\n</parameter>\n",
        call_end="</function>\n",
        end="</tool_call>",
    ),
)
"""``<tool_call>``, ``<function=name>``, ``<parameter=key>``, values on lines of their own.

The model sometimes leaves the outer tag out: a function stands for a call without it too."""

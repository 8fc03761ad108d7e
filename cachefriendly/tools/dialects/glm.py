"""The dialect of GLM 4 and others: the name, then keys and values in pairs of tags."""

from __future__ import annotations

from cachefriendly.tools.dialects.tags import TagDialect
from cachefriendly.tools.tag_text import TagText

__all__ = ["GLM", "GLM_TIGHT"]

_TOOL_RESPONSE = ("<tool_response>", "</tool_response>")


GLM = TagDialect(
    name="glm",
    structure=_TOOL_RESPONSE,
    tells=("<tool_call>", "<arg_key>", "<arg_value>"),
    text=TagText(
        begin="<tool_call>",
        call_open="",
        name_end="\n",
        key_open="<arg_key>",
        key_end="</arg_key>\n<arg_value>",
        value_end="</arg_value>\n",
        end="</tool_call>",
    ),
)
"""GLM 4.5 and 4.6: keys and values on lines of their own."""

GLM_TIGHT = TagDialect(
    name="glm_tight",
    structure=_TOOL_RESPONSE,
    tells=("<tool_call>", "<arg_value>", "</arg_key><arg_value>"),
    text=TagText(
        begin="<tool_call>",
        call_open="",
        name_end="",
        key_open="<arg_key>",
        key_end="</arg_key><arg_value>",
        value_end="</arg_value>",
        end="</tool_call>",
        between="",
    ),
)
"""GLM 4.7 and Spark: no line breaks between the tags."""

"""Mistral's dialects: ``[TOOL_CALLS]``, then a list of calls or one call's name and arguments."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from cachefriendly.messages import ToolCall
from cachefriendly.tools.block_dialect import BlockDialect
from cachefriendly.tools.call_json import BrokenCall, read_arguments, written_id
from cachefriendly.tools.call_text import CALL_ID, CallText, listed_calls
from cachefriendly.tools.json_blocks import JsonBlockParser

__all__ = ["MISTRAL", "MISTRAL_CALL_ID", "MISTRAL_LIST", "MistralDialect"]

CALLS, ID, ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_HEAD = re.compile(r"\s*([^\s\[\]]+)\s*(?:\[CALL_ID\]\s*(\S*?)\s*)?(?:\[ARGS\]\s*)?")
_GOOD_ID = re.compile(r"[a-zA-Z0-9]{9}")


class MistralParser(JsonBlockParser):
    """Reads all forms; the ids it makes are of the nine characters that the templates demand."""

    def _read_named(self, head: str, text: str) -> tuple[str, dict[str, Any]]:
        match = _HEAD.fullmatch(head)
        if match is None:
            raise BrokenCall("no name of a tool stands before the arguments")
        return match[1], read_arguments(text, match[1])

    def _written_id(self, head: str, text: str) -> str:
        match = _HEAD.fullmatch(head)
        return (match[2] or "") if match else written_id(text)

    def _new_id(self, digest: str) -> str:
        return digest[:9]


@dataclass(frozen=True, kw_only=True)
class MistralDialect(BlockDialect):
    """Calls behind ``[TOOL_CALLS]``, in the form of one of the versions."""

    opens: tuple[str, ...] = (CALLS,)
    several: bool = False
    reader: type[JsonBlockParser] = MistralParser

    def call_id(self, call: ToolCall, index: int) -> str:
        """Nine letters or digits: templates refuse any other id."""
        if _GOOD_ID.fullmatch(call.id) or not call.id:
            return call.id
        return hashlib.blake2b(call.id.encode("utf-8", "replace"), digest_size=5).hexdigest()[:9]


MISTRAL_LIST = MistralDialect(
    name="mistral_v3",
    tells=(CALLS,),
    text=listed_calls(CALLS, ""),
)
"""Versions 3 and 7: a list of objects."""

MISTRAL = MistralDialect(
    name="mistral",
    inner=(ARGUMENTS,),
    tells=(CALLS, ARGUMENTS),
    text=CallText(before_name=CALLS, after_name=ARGUMENTS),
)
"""Version 13: name and arguments behind a marker for each call."""

MISTRAL_CALL_ID = MistralDialect(
    name="mistral_v11",
    inner=(ID, ARGUMENTS),
    tells=(CALLS, ID, ARGUMENTS),
    text=CallText(
        before_name=CALLS,
        after_name=ID + CALL_ID + ARGUMENTS,
        id_pattern="[a-zA-Z0-9]{9}",
    ),
)
"""Version 11: name, id and arguments."""

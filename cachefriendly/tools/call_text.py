"""How a dialect spells calls whose arguments are JSON: for writing them and for grammars."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cachefriendly.messages import ToolCall
from cachefriendly.tools.matcher import marker_rule

__all__ = ["CALL_ID", "CallText", "lark_text", "listed_calls"]

CALL_ID = "\0"
"""Stands in a `CallText` where the id of the call is written."""


@dataclass(frozen=True, slots=True)
class CallText:
    """The texts around names and arguments.

    ``begin`` [``before_name`` name ``after_name`` arguments ``after_arguments``] ``between`` ...
    ``end``; ``quoted``: the name stands inside a JSON string; ``id_pattern``: the ids that the
    model writes at `CALL_ID`, as a regular expression.
    """

    before_name: str
    after_name: str
    after_arguments: str = ""
    begin: str = ""
    between: str = ""
    end: str = ""
    quoted: bool = False
    id_pattern: str = "[0-9]"

    def render(self, calls: Sequence[ToolCall]) -> str:
        """The calls as a model is trained to write them."""
        texts = (
            self.opening(call.name).replace(CALL_ID, call.id)
            + json.dumps(dict(call.arguments), ensure_ascii=False)
            + self.after_arguments
            for call in calls
        )
        return self.begin + self.between.join(texts) + self.end

    def opening(self, name: str) -> str:
        """What stands between the beginning of a call and its arguments."""
        spelled = json.dumps(name, ensure_ascii=False)[1:-1] if self.quoted else name
        return self.before_name + spelled + self.after_name


def listed_calls(begin: str, end: str) -> CallText:
    """A JSON list of ``{"name": ..., "arguments": ...}`` between two texts."""
    return CallText(
        begin=f"{begin}[",
        before_name='{"name": "',
        after_name='", "arguments": ',
        after_arguments="}",
        between=", ",
        end=f"]{end}",
        quoted=True,
    )


def lark_text(text: str, markers: Sequence[str], id_pattern: str = "") -> str:
    """``text`` as a lark expression, in which the markers are those of a `GrammarSpec`.

    Empty for no text, so it stands in a sequence with something else.
    """
    known = sorted({*markers, CALL_ID}, key=len, reverse=True)
    pieces = re.split(f"({'|'.join(map(re.escape, known))})", text)
    return " ".join(_lark_pieces(pieces, markers, id_pattern))


def _lark_pieces(pieces: Iterable[str], markers: Sequence[str], id_pattern: str) -> Iterable[str]:
    for piece in pieces:
        if piece in markers:
            yield marker_rule(markers.index(piece))
        elif piece == CALL_ID:
            yield f"/{id_pattern}/"
        elif piece:
            yield json.dumps(piece, ensure_ascii=False)

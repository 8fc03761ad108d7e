"""The Hermes / Qwen dialect: each call is a JSON object between ``<tool_call>`` markers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cachefriendly.messages import Message, Tool
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.call_json import read_call
from cachefriendly.tools.call_text import CallText
from cachefriendly.tools.grammar import calls_grammar
from cachefriendly.tools.json_body import JsonBody
from cachefriendly.tools.marked import MarkedParser
from cachefriendly.tools.native import FormDialect, tool_line
from cachefriendly.tools.stream import THINK, Reasoning

__all__ = ["HermesDialect", "HermesParser"]

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
RESULT_OPEN, RESULT_CLOSE = "<tool_response>", "</tool_response>"

_TEXT = CallText(
    before_name=CALL_OPEN + '\n{"name": "',
    after_name='", "arguments": ',
    after_arguments="}\n" + CALL_CLOSE,
    between="\n",
    quoted=True,
)
_INTRODUCTION = """\
# Tools

You can use the tools below to help with the user's request. Each line between <tools> and \
</tools> is one tool, given as a JSON object with the JSON Schema of its arguments:
<tools>
"""
_INSTRUCTIONS = """
</tools>

To use a tool, reply with a JSON object that holds its name and its arguments, between \
<tool_call> and </tool_call>:
<tool_call>
{"name": "the tool's name", "arguments": {"argument": "value"}}
</tool_call>
Use one such block for each call. The results come back between <tool_response> and \
</tool_response>."""


@dataclass(frozen=True, kw_only=True)
class HermesDialect(FormDialect):
    """Calls in ``<tool_call>``, results in ``<tool_response>``; the fallback for any template."""

    name: str = "hermes"
    tells: tuple[str, ...] = ("tools", CALL_OPEN)
    text: CallText = _TEXT
    structure: tuple[str, ...] = (CALL_OPEN, CALL_CLOSE, RESULT_OPEN, RESULT_CLOSE)

    def describe(self, tools: Sequence[Tool]) -> str:
        """The block for the end of a system message: the tools, one per line, in this order."""
        return _INTRODUCTION + "\n".join(map(tool_line, tools)) + _INSTRUCTIONS

    def render_result(self, message: Message) -> str:
        """The text of a tool result; templates without tools get it as a user turn."""
        return f"{RESULT_OPEN}\n{message.content}\n{RESULT_CLOSE}"

    def parser(
        self, *, id_seed: str, tools: Sequence[Tool] = (), reasoning_open: bool = False
    ) -> HermesParser:
        """A parser for one reply. The markers say what a call is, so tools are not needed."""
        return HermesParser(
            id_seed=id_seed, reasoning=self.reasoning, reasoning_open=reasoning_open
        )

    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec:
        """Exactly one call of one of these tools, or one or more of them when ``many``."""
        return calls_grammar(tools, _TEXT, markers=(CALL_OPEN, CALL_CLOSE), many=many)


class HermesParser(MarkedParser):
    """Text outside the markers is content, whitespace before a call is not.

    A closing marker inside a JSON string belongs to the string, unless the JSON never becomes
    whole: then the first closing marker ends the (invalid) call. A new opening marker outside a
    string ends a call whose closing marker is missing.
    """

    def __init__(
        self, *, id_seed: str, reasoning: Reasoning | None = THINK, reasoning_open: bool = False
    ) -> None:
        super().__init__(
            id_seed=id_seed, opens=(CALL_OPEN,), reasoning=reasoning, reasoning_open=reasoning_open
        )
        self._body = _body()

    def _call(self, final: bool) -> bool:
        end = self._body.find(self._pending, final)
        if end is None:
            return False
        body, self._body = self._pending[: end.body], _body()
        return self._end_call(end.call, lambda: read_call(body), whole=end.whole)


def _body() -> JsonBody:
    return JsonBody((CALL_CLOSE,), (CALL_OPEN,), breaks=(CALL_CLOSE,))

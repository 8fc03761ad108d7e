"""Dialects whose calls are JSON behind an opening text: only the texts differ."""

from __future__ import annotations

from typing import Any

from cachefriendly.tools.block_dialect import BlockDialect
from cachefriendly.tools.call_json import BrokenCall, as_arguments, read_arguments, read_json
from cachefriendly.tools.call_text import CALL_ID, CallText, listed_calls
from cachefriendly.tools.json_blocks import JsonBlockParser

__all__ = [
    "APERTUS",
    "APRIEL",
    "COHERE",
    "COMMAND_R_PLUS",
    "FIREFUNCTION",
    "FUNCTIONARY_TAG",
    "GIGACHAT",
    "GIGACHAT3",
    "GRANITE3",
    "MINIMAX_M1",
    "NEMOTRON_V2",
    "SOLAR",
]


class _ApertusParser(JsonBlockParser):
    """Each object has one key, the tool's name."""

    def _read_item(self, text: str) -> tuple[str, dict[str, Any]]:
        call = read_json(text)
        if not isinstance(call, dict) or len(call) != 1:
            raise BrokenCall("a tool call must be a JSON object with the tool's name as its key")
        ((name, arguments),) = call.items()
        return name, as_arguments(arguments, name)


APERTUS = BlockDialect(
    name="apertus",
    opens=("<|tools_prefix|>",),
    closes=("<|tools_suffix|>",),
    tells=("<|tools_prefix|>",),
    text=CallText(
        begin="<|tools_prefix|>[",
        before_name='{"',
        after_name='": ',
        after_arguments="}",
        between=", ",
        end="]<|tools_suffix|>",
        quoted=True,
    ),
    reader=_ApertusParser,
)
"""Apertus: a list of ``{"name": arguments}``."""

APRIEL = BlockDialect(
    name="apriel",
    opens=("<tool_calls>",),
    closes=("</tool_calls>",),
    tells=("<tool_calls>[",),
    text=listed_calls("<tool_calls>", "</tool_calls>"),
)
"""Apriel: a list between ``<tool_calls>`` and ``</tool_calls>``."""

MINIMAX_M1 = BlockDialect(
    name="minimax_m1",
    opens=("<tool_calls>",),
    closes=("</tool_calls>",),
    tells=("<tool_calls>",),
    text=CallText(
        begin="<tool_calls>\n",
        before_name='{"name": "',
        after_name='", "arguments": ',
        after_arguments="}\n",
        end="</tool_calls>",
        quoted=True,
    ),
)
"""MiniMax M1: one object on each line between ``<tool_calls>`` and ``</tool_calls>``."""

NEMOTRON_V2 = BlockDialect(
    name="nemotron_v2",
    opens=("<TOOLCALL>",),
    closes=("</TOOLCALL>",),
    tells=("<TOOLCALL>",),
    text=listed_calls("<TOOLCALL>", "</TOOLCALL>"),
)
"""Nemotron Nano v2: a list between ``<TOOLCALL>`` and ``</TOOLCALL>``."""

GRANITE3 = BlockDialect(
    name="granite3",
    opens=("<|tool_call|>",),
    several=False,
    tells=("<|tool_call|>",),
    text=listed_calls("<|tool_call|>", ""),
)
"""Granite 3: a list behind ``<|tool_call|>``."""

COHERE = BlockDialect(
    name="cohere",
    opens=("<|START_ACTION|>",),
    closes=("<|END_ACTION|>",),
    drops=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    tells=("<|START_ACTION|>",),
    text=CallText(
        begin="<|START_ACTION|>[\n",
        before_name='    {"tool_call_id": "' + CALL_ID + '", "tool_name": "',
        after_name='", "parameters": ',
        after_arguments="}",
        between=",\n",
        end="\n]<|END_ACTION|>",
        quoted=True,
    ),
)
"""Command R7B and later: a list of actions; text and actions have markers of their own."""

COMMAND_R_PLUS = BlockDialect(
    name="command_r_plus",
    opens=("Action:\n```json", "Action: ```json"),
    closes=("```",),
    tells=("Action:\\n```json",),
    text=CallText(
        begin="Action:\n```json\n[\n",
        before_name='    {\n        "tool_name": "',
        after_name='",\n        "parameters": ',
        after_arguments="\n    }",
        between=",\n",
        end="\n]\n```",
        quoted=True,
    ),
)
"""Command R and R+: a fenced list of actions behind the word ``Action:``."""


class _FireFunctionParser(JsonBlockParser):
    """The opening text holds the list's bracket."""

    def _find_value(self, final: bool) -> bool:
        self._scanner.push("[")
        self._in_list, self._phase = True, "value"
        return False


FIREFUNCTION = BlockDialect(
    name="firefunction",
    opens=("functools[",),
    several=False,
    tells=(" functools[",),
    text=listed_calls(" functools", ""),
    reader=_FireFunctionParser,
)
"""FireFunction: ``functools[...]``."""

GIGACHAT3 = BlockDialect(
    name="gigachat3",
    opens=("<|message_sep|>\n\nfunction call<|role_sep|>\n", "function call<|role_sep|>\n"),
    drops=("<|message_sep|>",),
    inner=("<|role_sep|>",),
    several=False,
    tells=("<|role_sep|>", "function call"),
    text=CallText(
        before_name='<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "',
        after_name='", "arguments": ',
        after_arguments="}",
        quoted=True,
    ),
)
"""GigaChat 3: one object as a message of the role ``function call``."""

GIGACHAT = BlockDialect(
    name="gigachat",
    opens=("<|function_call|>",),
    drops=("<|message_sep|>",),
    several=False,
    tells=("<|function_call|>", "<|role_sep|>"),
    text=CallText(
        before_name='<|function_call|>{"name": "',
        after_name='", "arguments": ',
        after_arguments="}",
        quoted=True,
    ),
)
"""GigaChat 3.1: one object behind ``<|function_call|>``."""


class _TagParser(JsonBlockParser):
    def _read_named(self, head: str, text: str) -> tuple[str, dict[str, Any]]:
        name, found, rest = head.strip().partition(">")
        if not name or not found or rest.strip():
            raise BrokenCall("no name of a tool stands in the tag")
        return name, read_arguments(text, name)


FUNCTIONARY_TAG = BlockDialect(
    name="functionary_v3_1",
    opens=("<function=",),
    closes=("</function>",),
    tells=("<function=", "</function>", "ipython"),
    text=CallText(before_name="<function=", after_name=">", after_arguments="</function>"),
    reader=_TagParser,
)
"""Functionary 3.1: ``<function=name>{...}</function>``."""


class _SolarParser(JsonBlockParser):
    def _read_named(self, head: str, text: str) -> tuple[str, dict[str, Any]]:
        name = _solar_head(head)[1]
        if not name:
            raise BrokenCall("no name of a tool stands before the arguments")
        return name, read_arguments(text, name)

    def _written_id(self, head: str, text: str) -> str:
        return _solar_head(head)[0]


def _solar_head(head: str) -> tuple[str, str]:
    """Id and name."""
    call_id, _, rest = head.partition("<|tool_call:name|>")
    return call_id.strip(), rest.partition("<|tool_call:args|>")[0].strip()


SOLAR = BlockDialect(
    name="solar",
    opens=("<|tool_call:begin|>",),
    closes=("<|tool_call:end|>",),
    inner=("<|tool_call:name|>", "<|tool_call:args|>"),
    drops=("<|tool_calls|>", "<|calls|>", "<|content|>", "<|begin|>assistant", "<|end|>"),
    tells=("<|tool_call:begin|>",),
    stops=("<|calls|>",),
    text=CallText(
        begin="<|tool_calls|>",
        before_name="<|tool_call:begin|>" + CALL_ID + "<|tool_call:name|>",
        after_name="<|tool_call:args|>",
        after_arguments="<|tool_call:end|>",
        id_pattern="[a-z0-9]{9}",
    ),
    reader=_SolarParser,
)
"""Solar Open: id, name and arguments of a call each behind a marker."""

"""Dialects whose calls are JSON behind an opening text: only the texts differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from cachefriendly.messages import Tool
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.call_json import BrokenCall, as_arguments, read_arguments, read_json
from cachefriendly.tools.call_text import CALL_ID, CallText, listed_calls
from cachefriendly.tools.grammar import calls_grammar
from cachefriendly.tools.json_blocks import JsonBlockParser
from cachefriendly.tools.native import FormDialect
from cachefriendly.tools.stream import ReplyParser

__all__ = [
    "ApertusDialect",
    "AprielDialect",
    "BlockDialect",
    "CohereDialect",
    "CommandRPlusDialect",
    "FireFunctionDialect",
    "FunctionaryTagDialect",
    "GigaChat3Dialect",
    "GigaChatDialect",
    "Granite3Dialect",
    "MiniMaxM1Dialect",
    "NemotronV2Dialect",
    "SolarDialect",
]


class BlockDialect(FormDialect):
    """Texts as data, those of `JsonBlockParser` among them.

    ``inner`` are the markers inside a call.
    """

    text: ClassVar[CallText]
    opens: ClassVar[tuple[str, ...]]
    closes: ClassVar[tuple[str, ...]] = ()
    drops: ClassVar[tuple[str, ...]] = ()
    inner: ClassVar[tuple[str, ...]] = ()
    several: ClassVar[bool] = True
    reader: ClassVar[type[JsonBlockParser]] = JsonBlockParser

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


class _ApertusParser(JsonBlockParser):
    """Each object has one key, the tool's name."""

    def _read_item(self, text: str) -> tuple[str, dict[str, Any]]:
        call = read_json(text)
        if not isinstance(call, dict) or len(call) != 1:
            raise BrokenCall("a tool call must be a JSON object with the tool's name as its key")
        ((name, arguments),) = call.items()
        return name, as_arguments(arguments, name)


class ApertusDialect(BlockDialect):
    """Apertus: a list of ``{"name": arguments}``."""

    name = "apertus"
    opens, closes = ("<|tools_prefix|>",), ("<|tools_suffix|>",)
    tells = ("<|tools_prefix|>",)
    text = CallText(
        begin="<|tools_prefix|>[",
        before_name='{"',
        after_name='": ',
        after_arguments="}",
        between=", ",
        end="]<|tools_suffix|>",
        quoted=True,
    )
    reader = _ApertusParser


class AprielDialect(BlockDialect):
    """Apriel: a list between ``<tool_calls>`` and ``</tool_calls>``."""

    name = "apriel"
    opens, closes = ("<tool_calls>",), ("</tool_calls>",)
    tells = ("<tool_calls>[",)
    text = listed_calls("<tool_calls>", "</tool_calls>")


class MiniMaxM1Dialect(BlockDialect):
    """MiniMax M1: one object on each line between ``<tool_calls>`` and ``</tool_calls>``."""

    name = "minimax_m1"
    opens, closes = ("<tool_calls>",), ("</tool_calls>",)
    tells = ("<tool_calls>",)
    text = CallText(
        begin="<tool_calls>\n",
        before_name='{"name": "',
        after_name='", "arguments": ',
        after_arguments="}\n",
        end="</tool_calls>",
        quoted=True,
    )


class NemotronV2Dialect(BlockDialect):
    """Nemotron Nano v2: a list between ``<TOOLCALL>`` and ``</TOOLCALL>``."""

    name = "nemotron_v2"
    opens, closes = ("<TOOLCALL>",), ("</TOOLCALL>",)
    tells = ("<TOOLCALL>",)
    text = listed_calls("<TOOLCALL>", "</TOOLCALL>")


class Granite3Dialect(BlockDialect):
    """Granite 3: a list behind ``<|tool_call|>``."""

    name = "granite3"
    opens = ("<|tool_call|>",)
    several = False
    tells = ("<|tool_call|>",)
    text = listed_calls("<|tool_call|>", "")


class CohereDialect(BlockDialect):
    """Command R7B and later: a list of actions; text and actions have markers of their own."""

    name = "cohere"
    opens, closes = ("<|START_ACTION|>",), ("<|END_ACTION|>",)
    drops = ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")
    tells = ("<|START_ACTION|>",)
    text = CallText(
        begin="<|START_ACTION|>[\n",
        before_name='    {"tool_call_id": "' + CALL_ID + '", "tool_name": "',
        after_name='", "parameters": ',
        after_arguments="}",
        between=",\n",
        end="\n]<|END_ACTION|>",
        quoted=True,
    )


class CommandRPlusDialect(BlockDialect):
    """Command R and R+: a fenced list of actions behind the word ``Action:``."""

    name = "command_r_plus"
    opens, closes = ("Action:\n```json", "Action: ```json"), ("```",)
    tells = ("Action:\\n```json",)
    text = CallText(
        begin="Action:\n```json\n[\n",
        before_name='    {\n        "tool_name": "',
        after_name='",\n        "parameters": ',
        after_arguments="\n    }",
        between=",\n",
        end="\n]\n```",
        quoted=True,
    )


class _FireFunctionParser(JsonBlockParser):
    """The opening text holds the list's bracket."""

    def _find_value(self, final: bool) -> bool:
        self._scanner.push("[")
        self._in_list, self._phase = True, "value"
        return False


class FireFunctionDialect(BlockDialect):
    """FireFunction: ``functools[...]``."""

    name = "firefunction"
    opens = ("functools[",)
    several = False
    tells = (" functools[",)
    text = listed_calls(" functools", "")
    reader = _FireFunctionParser


class GigaChat3Dialect(BlockDialect):
    """GigaChat 3: one object as a message of the role ``function call``."""

    name = "gigachat3"
    opens = ("<|message_sep|>\n\nfunction call<|role_sep|>\n", "function call<|role_sep|>\n")
    drops = ("<|message_sep|>",)
    inner = ("<|role_sep|>",)
    several = False
    tells = ("<|role_sep|>", "function call")
    text = CallText(
        before_name='<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "',
        after_name='", "arguments": ',
        after_arguments="}",
        quoted=True,
    )


class GigaChatDialect(BlockDialect):
    """GigaChat 3.1: one object behind ``<|function_call|>``."""

    name = "gigachat"
    opens = ("<|function_call|>",)
    drops = ("<|message_sep|>",)
    several = False
    tells = ("<|function_call|>", "<|role_sep|>")
    text = CallText(
        before_name='<|function_call|>{"name": "',
        after_name='", "arguments": ',
        after_arguments="}",
        quoted=True,
    )


class _TagParser(JsonBlockParser):
    def _read_named(self, head: str, text: str) -> tuple[str, dict[str, Any]]:
        name, found, rest = head.strip().partition(">")
        if not name or not found or rest.strip():
            raise BrokenCall("no name of a tool stands in the tag")
        return name, read_arguments(text, name)


class FunctionaryTagDialect(BlockDialect):
    """Functionary 3.1: ``<function=name>{...}</function>``."""

    name = "functionary_v3_1"
    opens, closes = ("<function=",), ("</function>",)
    tells = ("<function=", "</function>", "ipython")
    text = CallText(before_name="<function=", after_name=">", after_arguments="</function>")
    reader = _TagParser


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


class SolarDialect(BlockDialect):
    """Solar Open: id, name and arguments of a call each behind a marker."""

    name = "solar"
    opens, closes = ("<|tool_call:begin|>",), ("<|tool_call:end|>",)
    inner = ("<|tool_call:name|>", "<|tool_call:args|>")
    drops = ("<|tool_calls|>", "<|calls|>", "<|content|>", "<|begin|>assistant", "<|end|>")
    tells = ("<|tool_call:begin|>",)
    stops = ("<|calls|>",)
    text = CallText(
        begin="<|tool_calls|>",
        before_name="<|tool_call:begin|>" + CALL_ID + "<|tool_call:name|>",
        after_name="<|tool_call:args|>",
        after_arguments="<|tool_call:end|>",
        id_pattern="[a-z0-9]{9}",
    )
    reader = _SolarParser

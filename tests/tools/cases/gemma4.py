"""Gemma 4: bare keys, strings between tokens, thoughts in a channel."""

import re

from cachefriendly.messages import Tool
from cachefriendly.tools.dialects.gemma4 import GemmaDialect
from tests.tools.driver import Case

DIALECT = GemmaDialect()
TOOLS = (Tool("add", "Adds.", {}), Tool("find", "Finds.", {}))
HEADER = re.compile(r"<\|channel>thought(?=\n)")
ADD = ("add", {"a": 1, "b": [False, "x"]})
CALL = '<|tool_call>call:add{a:1,b:[false,<|"|>x<|"|>]}<tool_call|>'


def find(value: str) -> str:
    return f"<|tool_call>call:find{{q:{value}}}<tool_call|>"


CASES = {
    "text only": Case("1 <| 2 <tool\n", "1 <| 2 <tool\n"),
    "one call": Case(CALL, calls=(ADD,)),
    "text before and after": Case(f"Let me see.\n{CALL}\nSo.", "Let me see.\nSo.", (ADD,)),
    "reasoning, text, call": Case(
        f"<|channel>thought\nHm. 2?\n<channel|>See.{CALL}", "See.", (ADD,), reasoning="Hm. 2?"
    ),
    "reasoning opened": Case(f"Hm.\n<channel|>{CALL}", "", (ADD,), (), "Hm.", opened=True),
    "empty thought": Case("<|channel>thought\n<channel|>So.", "So."),
    "a thought behind text": Case(
        "See.\n<|channel>thought\nHm.<channel|>So.", "See.So.", reasoning="Hm."
    ),
    "two thoughts": Case(
        f"<|channel>thought\nHm.<channel|>{CALL}<|channel>thought\nOh.<channel|>So.",
        "So.",
        (ADD,),
        reasoning="Hm.\n\nOh.",
    ),
    "thought never closed": Case("<|channel>thought\nHm <chan", reasoning="Hm <chan"),
    "two in a row": Case(CALL + CALL, calls=(ADD, ADD)),
    "stopped at the result": Case(f"{CALL}<|tool_response>", calls=(ADD,)),
    "nested": Case(
        find('{a:[[],{b:null}],<|"|>c d<|"|>:{}}'),
        calls=(("find", {"q": {"a": [[], {"b": None}], "c d": {}}}),),
    ),
    "unicode": Case(find('<|"|>你好 \\u00e9 🎉<|"|>'), calls=(("find", {"q": "你好 \\u00e9 🎉"}),)),
    "strings are exact": Case(
        find('<|"|> "{a:1}", \n<b> <|"|>'), calls=(("find", {"q": ' "{a:1}", \n<b> '}),)
    ),
    "a marker inside a string": Case(
        find('<|"|><tool_call|><|tool_call><|"|>'),
        calls=(("find", {"q": "<tool_call|><|tool_call>"}),),
    ),
    "exact values": Case(
        find("[0,-1.5,1e3,true,None,12345678901234567890]"),
        calls=(("find", {"q": [0, -1.5, 1000.0, True, None, 12345678901234567890]}),),
    ),
    "like JSON": Case(
        '<|tool_call>call:find { "q": "a\\n", r: [1, 2] }<tool_call|>',
        calls=(("find", {"q": "a\n", "r": [1, 2]}),),
    ),
    "no arguments": Case("<|tool_call>call:now{}<tool_call|>", calls=(("now", {}),)),
    "close missing": Case(CALL.removesuffix("<tool_call|>") + CALL, calls=(ADD, ADD)),
    "end missing": Case(CALL.removesuffix("<tool_call|>"), calls=(ADD,)),
    "malformed": Case(f"{find('x')}{CALL}", "", (ADD,), ("malformed",)),
    "a string never closed": Case(
        f"{find('<|' + chr(34) + '|>x')} So.", "So.", (), ("end of a string",)
    ),
    "one brace too many": Case(find("1}"), invalid=("nothing more",)),
    "no object": Case("<|tool_call>call:add<tool_call|>", invalid=("an object expected",)),
    "no name": Case("<|tool_call>call:{a:1}<tool_call|>", invalid=("names no tool",)),
    "NaN": Case(find("NaN"), invalid=("is not JSON",)),
    "cut off": Case("So: <|tool_call>call:add{a:", "So:", (), ("ended inside",)),
}

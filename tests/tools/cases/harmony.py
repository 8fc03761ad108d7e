"""gpt-oss: replies begin inside the header that the generation prompt opened."""

import re

from cachefriendly.messages import Tool
from cachefriendly.tools.dialects.harmony import HarmonyDialect
from tests.tools.driver import Case

DIALECT = HarmonyDialect()
TOOLS = (Tool("add", "Adds.", {}), Tool("find", "Finds.", {}))
# Words of a header are structure: role, channel and type of content.
HEADER = re.compile(r"<\|(?:start|channel|constrain)\|>\s*\w*(?:<\|?\w*\|?$)?")
ADD = ("add", {"a": 1, "b": [False]})


def call(arguments: str, name: str = "add") -> str:
    return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}"


ARGUMENTS = '{"a": 1, "b": [false]}'
CALL = call(ARGUMENTS)
THOUGHT = "<|channel|>analysis<|message|>Hm. 2?<|end|>"
FINAL = "<|channel|>final<|message|>It is 3.\n"
NEXT = "<|start|>assistant"

CASES = {
    "text only": Case(FINAL, "It is 3.\n"),
    "words without a header": Case(" Today\nit rains.", " Today\nit rains."),
    "empty": Case(""),
    "one call": Case(CALL, calls=(ADD,)),
    "one call, ended": Case(f"{CALL}<|call|>", calls=(ADD,)),
    "recipient in the role": Case(
        f" to=functions.add<|channel|>commentary json<|message|>{ARGUMENTS}<|call|>", calls=(ADD,)
    ),
    "recipient in the role of a later message": Case(
        f"{THOUGHT}{NEXT} to=functions.add<|channel|>commentary <|constrain|>json<|message|>"
        f"{ARGUMENTS}",
        calls=(ADD,),
        reasoning="Hm. 2?",
    ),
    "a call in the channel of thoughts": Case(
        f"<|channel|>analysis to=functions.add code<|message|>{ARGUMENTS}<|call|>", calls=(ADD,)
    ),
    "reasoning, text": Case(f"{THOUGHT}{NEXT}{FINAL}", "It is 3.\n", reasoning="Hm. 2?"),
    "reasoning, preamble, call": Case(
        f"{THOUGHT}{NEXT}<|channel|>commentary<|message|>Let me see.<|end|>{NEXT}{CALL}<|call|>",
        "Let me see.",
        (ADD,),
        reasoning="Hm. 2?",
    ),
    "reasoning twice": Case(
        f"{THOUGHT}{NEXT}{THOUGHT}{NEXT}{FINAL}", "It is 3.\n", reasoning="Hm. 2?\n\nHm. 2?"
    ),
    "preamble and final": Case(
        f"<|channel|>commentary<|message|>Let me see.<|end|>{NEXT}{FINAL}<|return|>",
        "Let me see.\n\nIt is 3.\n",
    ),
    "reasoning opened": Case(f"Hm.<|end|>{NEXT}{CALL}", "", (ADD,), (), "Hm.", opened=True),
    "reasoning cut off": Case("<|channel|>analysis<|message|>Hm", reasoning="Hm"),
    "two in a row": Case(f"{CALL}<|end|>{NEXT}{CALL}<|call|>", calls=(ADD, ADD)),
    "two without ends": Case(f"{CALL}{NEXT}{CALL}", calls=(ADD, ADD)),
    "nested": Case(
        call('{"q": {"a": [[], {"b": null}]}}', "find"),
        calls=(("find", {"q": {"a": [[], {"b": None}]}}),),
    ),
    "unicode": Case(
        call('{"q": "你好 \\u00e9 🎉"}<|call|>', "find"), calls=(("find", {"q": "你好 é 🎉"}),)
    ),
    "markers inside a string": Case(
        call('{"q": "<|end|><|start|>x<|message|>"}', "find"),
        calls=(("find", {"q": "<|end|><|start|>x<|message|>"}),),
    ),
    "end missing before a header": Case(
        f"<|channel|>analysis<|message|>Hm.{NEXT}{FINAL}", "It is 3.\n", reasoning="Hm."
    ),
    "another channel at once": Case(
        f"<|channel|>analysis<|message|>Hm.{FINAL}", "It is 3.\n", reasoning="Hm."
    ),
    "text behind an end": Case(f"{THOUGHT}\nSo: 3.", "So: 3.", reasoning="Hm. 2?"),
    "unknown channel": Case("<|channel|>side<|message|>So.", "So."),
    "no channel": Case("<|message|>So.", "So."),
    "stray markers": Case(f"{FINAL}<|constrain|><|message|>!", "It is 3.\n!"),
    "a built-in tool": Case(
        '<|channel|>analysis to=browser.search code<|message|>{"query": "x"}<|call|>',
        calls=(("browser.search", {"query": "x"}),),
    ),
    "code for a built-in tool": Case(
        "<|channel|>analysis to=python code<|message|>print(1)<|call|>", invalid=("malformed",)
    ),
    "a result made up": Case(
        f"{CALL}<|call|><|start|>functions.add to=assistant<|channel|>commentary<|message|>3",
        "3",
        (ADD,),
    ),
    "no arguments": Case(call("", "now"), calls=(("now", {}),)),
    "malformed": Case(f"{call('{a: 1}')}<|end|>{NEXT}{CALL}", "", (ADD,), ("malformed",)),
    "a string never closed": Case(
        f"{call('{' + chr(34) + 'a: 1}')}<|end|>{NEXT}{FINAL}", "It is 3.\n", (), ("malformed",)
    ),
    "no name": Case(call("{}", ""), invalid=("names no tool",)),
    "header without a message": Case(
        f"<|channel|>commentary to=functions.add <|constrain|>json<|end|>{NEXT}{FINAL}",
        "It is 3.\n",
        (),
        ("is missing",),
    ),
    "cut off": Case(
        f"{THOUGHT}{NEXT}{call('{' + chr(34) + 'a')}", "", (), ("ended inside",), "Hm. 2?"
    ),
}

"""Kimi K2: the id of a call holds its name and is kept."""

from cachefriendly.messages import Tool
from cachefriendly.tools.dialects.kimi import KimiDialect
from tests.tools.driver import Case

DIALECT = KimiDialect()
TOOLS = (Tool("add", "Adds.", {}), Tool("find", "Finds.", {}))
BEGIN, END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
OPEN, ARGUMENTS, CLOSE = (
    "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
)  # fmt: skip
ADD = ("add", {"a": 1, "b": [False]})


def call(head: str, arguments: str) -> str:
    return f"{OPEN}{head}{ARGUMENTS}{arguments}{CLOSE}"


def section(*calls: str) -> str:
    return BEGIN + "".join(calls) + END


FIRST = call("functions.add:0", '{"a": 1, "b": [false]}')
SECOND = call("functions.add:1", '{"a": 1, "b": [false]}')

CASES = {
    "text only": Case("The sum is 3.\n", "The sum is 3.\n"),
    "one call": Case(section(FIRST), calls=(ADD,)),
    "text before and after": Case(
        f"Let me see.\n{section(FIRST)}\nSo.", "Let me see.\nSo.", (ADD,)
    ),
    "reasoning, text, call": Case(
        f"<think>Hm.</think>Let me see.{section(FIRST)}", "Let me see.", (ADD,), reasoning="Hm."
    ),
    "reasoning opened": Case(f"Hm.</think>{section(FIRST)}", "", (ADD,), (), "Hm.", opened=True),
    "two in a row": Case(section(FIRST, SECOND), calls=(ADD, ADD)),
    "two sections": Case(section(FIRST) + section(SECOND), calls=(ADD, ADD)),
    "one id twice": Case(section(FIRST, FIRST), calls=(ADD, ADD)),
    "nested": Case(
        section(call("functions.find:3", '{"q": {"a": [[], {"b": null}], "c": {}}}')),
        calls=(("find", {"q": {"a": [[], {"b": None}], "c": {}}}),),
    ),
    "unicode": Case(
        section(call("functions.find:0", '{"q": "你好 \\u00e9 🎉"}')),
        calls=(("find", {"q": "你好 é 🎉"}),),
    ),
    "a marker inside a string": Case(
        section(call("functions.find:0", f'{{"q": "{CLOSE}{END}"}}')),
        calls=(("find", {"q": f"{CLOSE}{END}"}),),
    ),
    "no arguments": Case(section(call("functions.now:0", "")), calls=(("now", {}),)),
    "name with dots and colons": Case(
        section(call("functions.a.b:c:2", "{}")), calls=(("a.b:c", {}),)
    ),
    "bare name": Case(section(call(" add ", "{}")), calls=(("add", {}),)),
    "close missing": Case(
        f"{BEGIN}{FIRST.removesuffix(CLOSE)}{SECOND.removesuffix(CLOSE)}{END}", calls=(ADD, ADD)
    ),
    "end missing": Case(f"{BEGIN}{FIRST.removesuffix(CLOSE)}", calls=(ADD,)),
    "malformed": Case(
        section(call("functions.add:0", "{a: 1}"), SECOND), "", (ADD,), ("malformed",)
    ),
    "a string never closed": Case(
        section(call("functions.add:0", '{"a": "x}'), SECOND), "", (ADD,), ("malformed",)
    ),
    "arguments are no object": Case(
        section(call("functions.add:0", "[1]")), invalid=("must be a JSON object",)
    ),
    "no name": Case(section(call("", "{}")), invalid=("names no tool",)),
    "no arguments marker": Case(
        section(f'{OPEN}functions.add:0 {{"a": 1}}{CLOSE}'), invalid=("is missing",)
    ),
    "cut off": Case(
        f'So:{BEGIN}{OPEN}functions.add:0{ARGUMENTS}{{"a', "So:", (), ("ended inside",)
    ),
}

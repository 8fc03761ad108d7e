"""What the dialects of blocks.py have in common, on one of them."""

from cachefriendly.messages import Tool
from cachefriendly.tools.dialects.blocks import NEMOTRON_V2
from tests.tools.driver import Case

DIALECT = NEMOTRON_V2
TOOLS = (Tool("add", "Adds.", {}), Tool("find", "Finds.", {}))
ONE = '{"name": "add", "arguments": {"a": 1, "b": 2.0}}'
CALL = f"<TOOLCALL>[{ONE}]</TOOLCALL>"
ADD = ("add", {"a": 1, "b": 2.0})


def find(value: object) -> tuple[str, dict[str, object]]:
    return "find", {"q": value}


CASES = {
    "text only": Case("Hello [there].\n", "Hello [there].\n"),
    "one call": Case(CALL, calls=(ADD,)),
    "one object without a list": Case(f"<TOOLCALL>{ONE}</TOOLCALL>", calls=(ADD,)),
    "reasoning, text, call, text": Case(
        f"<think>\nHm.\n</think>\n\nLet me see.\n{CALL}\nDone.",
        "Let me see.\nDone.",
        (ADD,),
        reasoning="Hm.",
    ),
    "two in a row": Case(f"{CALL}\n{CALL}", calls=(ADD, ADD)),
    "two in a list": Case(f"<TOOLCALL>[{ONE}, {ONE}]</TOOLCALL>", calls=(ADD, ADD)),
    "one on each line": Case(f"<TOOLCALL>\n{ONE}\n{ONE}\n</TOOLCALL>", calls=(ADD, ADD)),
    "nested": Case(
        '<TOOLCALL>[{"name": "find", "arguments": {"q": {"a": [[], [{}], {"b": null}]}}}]'
        "</TOOLCALL>",
        calls=(find({"a": [[], [{}], {"b": None}]}),),
    ),
    "unicode": Case(
        '<TOOLCALL>[{"name": "find", "arguments": {"q": "你好 \\u00e9 🎉"}}]</TOOLCALL>',
        calls=(find("你好 é 🎉"),),
    ),
    "the closing text inside a string": Case(
        '<TOOLCALL>[{"name": "find", "arguments": {"q": "a</TOOLCALL>b"}}]</TOOLCALL>!',
        "!",
        (find("a</TOOLCALL>b"),),
    ),
    "arguments as text": Case(
        '<TOOLCALL>[{"name": "find", "arguments": "{\\"q\\": \\"\\"}"}]</TOOLCALL>',
        calls=(find(""),),
    ),
    "malformed": Case(f"<TOOLCALL>add, please</TOOLCALL>{CALL}", "", (ADD,), ("must be",)),
    "malformed behind a good one": Case(
        f'<TOOLCALL>[{ONE}, {{"name": add}}]</TOOLCALL> So.', "So.", (ADD,), ("malformed",)
    ),
    "a string never closed": Case(
        '<TOOLCALL>[{"name": "add]</TOOLCALL> So.', "So.", invalid=("malformed",)
    ),
    "empty list": Case("<TOOLCALL>[]</TOOLCALL>", invalid=("must be",)),
    "no closing text": Case(f"<TOOLCALL>[{ONE}]\nThat adds.", "That adds.", (ADD,)),
    "cut off": Case('So:\n<TOOLCALL>[{"name": "add", "argu', "So:", invalid=("ended inside",)),
    "cut off in the second": Case(
        f'<TOOLCALL>[{ONE}, {{"name": "fi', calls=(ADD,), invalid=("ended inside",)
    ),
    "another begins before the first is whole": Case(
        f'<TOOLCALL>[{{"name": "find", <TOOLCALL>[{ONE}]</TOOLCALL>',
        calls=(ADD,),
        invalid=("malformed",),
    ),
}

# ruff: noqa: RUF001 (the bar of the model's tokens is a wide one)
"""DeepSeek V3.1: name, separator, arguments as they are."""

from cachefriendly.messages import Tool
from cachefriendly.tools.dialects.deepseek import DeepSeekDialect
from tests.tools.driver import Case

DIALECT = DeepSeekDialect()
TOOLS = (Tool("add", "Adds.", {}), Tool("find", "Finds.", {}))
BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
OPEN, SEPARATOR, CLOSE = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
ADD = ("add", {"a": 1, "b": [False]})
CALL = f'{OPEN}add{SEPARATOR}{{"a": 1, "b": [false]}}{CLOSE}'

CASES = {
    "text only": Case("The sum is 3.\n", "The sum is 3.\n"),
    "one call": Case(BEGIN + CALL + END, calls=(ADD,)),
    "text before and after": Case(
        f"Let me see.\n{BEGIN}{CALL}{END}\nSo.", "Let me see.\nSo.", (ADD,)
    ),
    "reasoning, text, call": Case(
        f"<think>Hm.</think>Let me see.{BEGIN}{CALL}{END}", "Let me see.", (ADD,), reasoning="Hm."
    ),
    "reasoning opened": Case(
        f"\nHm.\n</think>\n\n{BEGIN}{CALL}{END}", "", (ADD,), (), "Hm.", opened=True
    ),
    "two in a row": Case(BEGIN + CALL + CALL + END, calls=(ADD, ADD)),
    "nested": Case(
        f'{BEGIN}{OPEN}find{SEPARATOR}{{"q": {{"a": [[], {{"b": null}}]}}}}{CLOSE}{END}',
        calls=(("find", {"q": {"a": [[], {"b": None}]}}),),
    ),
    "unicode": Case(
        f'{BEGIN}{OPEN}find{SEPARATOR}{{"q": "你好 \\u00e9 🎉"}}{CLOSE}{END}',
        calls=(("find", {"q": "你好 é 🎉"}),),
    ),
    "a marker inside a string": Case(
        f'{BEGIN}{OPEN}find{SEPARATOR}{{"q": "{CLOSE}"}}{CLOSE}{END}',
        calls=(("find", {"q": CLOSE}),),
    ),
    "section never opened": Case(CALL, calls=(ADD,)),
    "close missing": Case(
        f"{BEGIN}{CALL.removesuffix(CLOSE)}{CALL.removesuffix(CLOSE)}{END}", calls=(ADD, ADD)
    ),
    "malformed": Case(
        f"{BEGIN}{OPEN}add{SEPARATOR}{{a: 1}}{CLOSE}{CALL}{END}", "", (ADD,), ("malformed",)
    ),
    "no separator": Case(f'{BEGIN}{OPEN}add {{"a": 1}}{CLOSE}{END}', invalid=("is missing",)),
    "no name": Case(f"{BEGIN}{OPEN}{SEPARATOR}{{}}{CLOSE}{END}", invalid=("names no tool",)),
    "a token of another turn": Case("A<｜tool▁output▁end｜>B", "AB"),
    "cut off": Case(f"So:{BEGIN}{OPEN}add{SEPARATOR}{{", "So:", (), ("ended inside",)),
}

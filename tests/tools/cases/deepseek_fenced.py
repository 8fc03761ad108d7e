# ruff: noqa: RUF001 (the bar of the model's tokens is a wide one)
"""DeepSeek V3 and R1: the arguments in a code block."""

from cachefriendly.messages import Tool
from cachefriendly.tools.dialects.deepseek import DeepSeekDialect
from tests.tools.driver import Case

DIALECT = DeepSeekDialect(fenced=True)
TOOLS = (Tool("add", "Adds.", {}), Tool("find", "Finds.", {}))
BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
OPEN, SEPARATOR, CLOSE = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
ADD = ("add", {"a": 1, "b": [False]})


def call(arguments: str, name: str = "add") -> str:
    return f"{OPEN}function{SEPARATOR}{name}\n```json\n{arguments}\n```{CLOSE}"


CALL = call('{"a": 1, "b": [false]}')

CASES = {
    "text only": Case("```json\n{}\n```\n", "```json\n{}\n```\n"),
    "one call": Case(BEGIN + CALL + END, calls=(ADD,)),
    "newline before the close": Case(BEGIN + CALL.replace("```<", "```\n<") + END, calls=(ADD,)),
    "reasoning opened": Case(
        f"Hm.\n</think>\n\nSo.{BEGIN}{CALL}{END}", "So.", (ADD,), (), "Hm.", opened=True
    ),
    "two in a row": Case(f"{BEGIN}{CALL}\n{CALL}{END}", calls=(ADD, ADD)),
    "nested": Case(
        BEGIN + call('{"q": {"a": [[], {"b": null}]}}', "find") + END,
        calls=(("find", {"q": {"a": [[], {"b": None}]}}),),
    ),
    "unicode": Case(
        BEGIN + call('{"q": "你好 \\u00e9 🎉"}', "find") + END,
        calls=(("find", {"q": "你好 é 🎉"}),),
    ),
    "a fence inside a string": Case(
        BEGIN + call('{"q": "```\\n```"}', "find") + END, calls=(("find", {"q": "```\n```"}),)
    ),
    "fence never closed": Case(f"{BEGIN}{CALL.replace('```<', '<')}{END}", calls=(ADD,)),
    "malformed": Case(f"{BEGIN}{call('{a}')}\n{CALL}{END}", "", (ADD,), ("malformed",)),
    "cut off": Case(f"So:{BEGIN}{OPEN}function{SEPARATOR}add\n```js", "So:", (), ("ended inside",)),
}

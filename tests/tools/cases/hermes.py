"""Hermes replies; more of them, with their reasons, are in test_hermes.py."""

from cachefriendly.messages import Tool
from cachefriendly.tools.dialects.hermes import HermesDialect
from tests.tools.driver import Case

DIALECT = HermesDialect()
TOOLS = (Tool("add", "Adds.", {}), Tool("find", "Finds.", {}))
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
ADD = ("add", {"a": 1, "b": 2})

CASES = {
    "text only": Case("Hello there.\n", "Hello there.\n"),
    "one call": Case(CALL, calls=(ADD,)),
    "reasoning, text, call": Case(
        f"<think>\nHm.\n</think>\n\nLet me see.\n{CALL}", "Let me see.", (ADD,), reasoning="Hm."
    ),
    "two in a row": Case(f"{CALL}\n{CALL}", calls=(ADD, ADD)),
    "nested": Case(
        '<tool_call>{"name": "find", "arguments": {"q": {"a": [[], {"b": null}]}}}</tool_call>',
        calls=(("find", {"q": {"a": [[], {"b": None}]}}),),
    ),
    "unicode": Case(
        '<tool_call>{"name": "find", "arguments": {"q": "你好 \\u00e9 🎉"}}</tool_call>',
        calls=(("find", {"q": "你好 é 🎉"}),),
    ),
    "malformed": Case(f"<tool_call>add, please</tool_call>{CALL}", "", (ADD,), ("malformed",)),
    "cut off": Case('So:\n<tool_call>{"name": "add", "argu', "So:", invalid=("ended inside",)),
}

"""Plain JSON replies; more of them, with their reasons, are in test_plain_json.py."""

from cachefriendly.messages import Tool
from cachefriendly.tools.dialects.plain_json import PlainJsonDialect
from tests.tools.driver import Case

DIALECT = PlainJsonDialect()
TOOLS = (Tool("add", "Adds.", {}), Tool("find", "Finds.", {}))
CALL = '{"name": "add", "arguments": {"a": 1, "b": [false]}}'
ADD = ("add", {"a": 1, "b": [False]})

CASES = {
    "text only": Case("The sum is 3.\n", "The sum is 3.\n"),
    "JSON of something else": Case('{"sum": 3}', '{"sum": 3}'),
    "one call": Case(CALL, calls=(ADD,)),
    "reasoning, then a call": Case(f"<think>Hm.</think>\n{CALL}", calls=(ADD,), reasoning="Hm."),
    "two in a row": Case(f"{CALL}\n{CALL}", calls=(ADD, ADD)),
    "nested": Case(
        '```json\n{"name": "find", "arguments": {"q": {"a": [[], {"b": null}]}}}\n```',
        calls=(("find", {"q": {"a": [[], {"b": None}]}}),),
    ),
    "unicode": Case(
        '{"name": "find", "parameters": {"q": "你好 \\u00e9 🎉"}}',
        calls=(("find", {"q": "你好 é 🎉"}),),
    ),
    "malformed": Case('{"name": "add", "arguments": {a: 1}}', invalid=("malformed",)),
}

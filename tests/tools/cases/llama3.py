"""Llama 3's forms: objects, and what stands behind the tag."""

import json

from cachefriendly.messages import Tool
from cachefriendly.tools.dialects.llama3 import Llama3Dialect
from tests.tools.driver import Case
from tests.tools.usual import TOOLS as USUAL
from tests.tools.usual import usual_cases

DIALECT = Llama3Dialect()
TOOLS = (*USUAL, Tool("brave_search", "Searches.", {}))
CODE_TOOLS = (*TOOLS, Tool("code_interpreter", "Runs Python.", {}))
ADD = '{"name": "add", "parameters": {"a": 1}}'
CALL = ("add", {"a": 1})

CASES = {
    **usual_cases(
        lambda name, args: json.dumps({"name": name, "parameters": args}, ensure_ascii=False),
        "; ",
        '{"name": "add", "parameters": {a: 1}}',
    ),
    "text before": Case(f"Let me see.\n{ADD}", f"Let me see.\n{ADD}"),
    "typed": Case('{"type": "function", ' + ADD[1:], calls=(CALL,)),
    "an unknown tool is text": Case(ADD.replace("add", "sub"), ADD.replace("add", "sub")),
    "tag, one": Case(f"<|python_tag|>{ADD}", calls=(CALL,)),
    "tag, two": Case(f"<|python_tag|>{ADD}; {ADD}", calls=(CALL, CALL)),
    "tag behind text": Case(f"Sure. <|python_tag|>{ADD}", "Sure.", (CALL,)),
    "built-in": Case(
        '<|python_tag|>brave_search.call(query="weather in Zürich")',
        calls=(("brave_search", {"query": "weather in Zürich"}),),
    ),
    "two built-ins": Case(
        '<|python_tag|>brave_search.call(query="a;b"); brave_search.call(query="c")',
        calls=(("brave_search", {"query": "a;b"}), ("brave_search", {"query": "c"})),
    ),
    "code nobody runs": Case("<|python_tag|>print(1 + 1)", invalid=("by name",)),
    "no code": Case("<|python_tag|>if", invalid=("malformed call",)),
    "tag, cut off": Case('<|python_tag|>{"name": "add", "para', invalid=("malformed JSON",)),
}
CODE = {
    "code": Case(
        "<|python_tag|>import math\nprint(math.pi)",
        calls=(("code_interpreter", {"code": "import math\nprint(math.pi)"}),),
    ),
    "an expression": Case(
        "<|python_tag|>print(1 + 1)", calls=(("code_interpreter", {"code": "print(1 + 1)"}),)
    ),
    "a built-in all the same": Case(
        '<|python_tag|>brave_search.call(query="a")', calls=(("brave_search", {"query": "a"}),)
    ),
}
TABLES = [(DIALECT, TOOLS, CASES), (DIALECT, CODE_TOOLS, CODE)]

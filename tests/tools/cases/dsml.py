# ruff: noqa: RUF001 (the bar of the model's token is a wide one)
"""DeepSeek V3.2 and later: each argument in a tag that says whether it is text or JSON."""

from cachefriendly.messages import Tool
from cachefriendly.tools.dialects.dsml import DsmlDialect
from tests.tools.driver import Case

DIALECT = DsmlDialect()
TOOLS = (
    Tool("add", "Adds.", {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}),
    Tool("find", "Finds.", {}),
)
T = "｜DSML｜"
BEGIN, END = f"\n\n<{T}function_calls>\n", f"</{T}function_calls>"
ADD = ("add", {"a": 1, "b": "2"})


def call(*parameters: str, name: str = "add") -> str:
    return f'<{T}invoke name="{name}">\n{"".join(parameters)}</{T}invoke>\n'


def text(key: str, value: str) -> str:
    return f'<{T}parameter name="{key}" string="true">{value}</{T}parameter>\n'


def data(key: str, value: str) -> str:
    return f'<{T}parameter name="{key}" string="false">{value}</{T}parameter>\n'


CALL = call(data("a", "1"), text("b", "2"))
UNTYPED = CALL.replace(' string="true"', "").replace(' string="false"', "")

CASES = {
    "text only": Case("1 < 2, </b>\n", "1 < 2, </b>\n"),
    "one call": Case(BEGIN + CALL + END, calls=(ADD,)),
    "the block of V4": Case((BEGIN + CALL + END).replace("function_", "tool_"), calls=(ADD,)),
    "text before and after": Case(f"See.{BEGIN}{CALL}{END}\nSo.", "See.\nSo.", (ADD,)),
    "reasoning, text, call": Case(
        f"<think>Hm.</think>See.{BEGIN}{CALL}{END}", "See.", (ADD,), reasoning="Hm."
    ),
    "reasoning opened": Case(f"Hm.</think>{BEGIN}{CALL}{END}", "", (ADD,), (), "Hm.", opened=True),
    "two in a row": Case(BEGIN + CALL + CALL + END, calls=(ADD, ADD)),
    "nested": Case(
        BEGIN + call(data("q", '{"a": [[], {"b": null}]}'), name="find") + END,
        calls=(("find", {"q": {"a": [[], {"b": None}]}}),),
    ),
    "unicode": Case(
        BEGIN + call(text("q", "你好 \\u00e9 🎉"), name="find") + END,
        calls=(("find", {"q": "你好 \\u00e9 🎉"}),),
    ),
    "text is exact": Case(
        BEGIN + call(text("q", ' "1"\n <b>\n'), name="find") + END,
        calls=(("find", {"q": ' "1"\n <b>\n'}),),
    ),
    "no arguments": Case(BEGIN + call("\n", name="now") + END, calls=(("now", {}),)),
    "types from the schema": Case(BEGIN + UNTYPED + END, calls=(ADD,)),
    "close missing": Case(
        f"{BEGIN}{CALL.replace(f'</{T}invoke>', '')}{CALL}{END}", calls=(ADD, ADD)
    ),
    "block never closed": Case(f"{BEGIN}{CALL}", calls=(ADD,)),
    "malformed": Case(
        f"{BEGIN}{call(data('a', '{a}'))}{CALL}{END}", "", (ADD,), ("malformed JSON",)
    ),
    "words among parameters": Case(
        f"{BEGIN}{call('a is 1')}{END}", invalid=("malformed parameters",)
    ),
    "parameter never closed": Case(
        f"{BEGIN}{call(f'<{T}parameter name=' + chr(34) + 'a' + chr(34) + '>1')}{CALL}{END}",
        "",
        (ADD,),
        ("malformed parameters",),
    ),
    "parameter not closed before another": Case(
        f"{BEGIN}{CALL.replace(f'</{T}parameter>', '', 1)}{CALL}{END}",
        "",
        (ADD,),
        ("malformed parameters",),
    ),
    "no name": Case(f"{BEGIN}{call(name='')}{END}", invalid=("names no tool",)),
    "cut off": Case(f'So:{BEGIN}<{T}invoke name="add', "So:", (), ("ended inside",)),
}

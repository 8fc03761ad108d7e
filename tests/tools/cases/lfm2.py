"""LFM2: a Python list of calls."""

from typing import Any

from cachefriendly.tools.dialects.lfm2 import Lfm2Dialect
from tests.tools.driver import Case
from tests.tools.usual import TOOLS, usual_cases

DIALECT = Lfm2Dialect()
OPEN, CLOSE = "<|tool_call_start|>", "<|tool_call_end|>"


def write(name: str, arguments: dict[str, Any]) -> str:
    inner = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return f"{OPEN}[{name}({inner})]{CLOSE}"


CASES = {
    **usual_cases(write, "\n", f"{OPEN}[add(1)]{CLOSE}", reasoning=("<think>", "</think>")),
    "two in a list": Case(
        f"{OPEN}[add(a=1), now()]{CLOSE}", calls=(("add", {"a": 1}), ("now", {}))
    ),
    "no list": Case(f"{OPEN}add(a=-1, b=1e3){CLOSE}", calls=(("add", {"a": -1, "b": 1000.0}),)),
    "values of JSON": Case(
        f'{OPEN}[add(deep={{"x": [null, true]}}, flag=false)]{CLOSE}',
        calls=(("add", {"deep": {"x": [None, True]}, "flag": False}),),
    ),
    "an escape that Python does not know": Case(
        f"{OPEN}[add(text='\\d \\' \\\\d')]{CLOSE}", calls=(("add", {"text": "\\d ' \\d"}),)
    ),
    "a value that is no literal": Case(f"{OPEN}[add(a=b)]{CLOSE}", invalid=("no literal",)),
    "a set is no JSON": Case(f"{OPEN}[add(a={{1}})]{CLOSE}", invalid=("no JSON",)),
    "code": Case(f"{OPEN}import os{CLOSE}", invalid=("must be name",)),
    "infinite": Case(f"{OPEN}[add(b=1e999)]{CLOSE}", invalid=("no JSON",)),
}

TABLES = [(DIALECT, TOOLS, CASES)]

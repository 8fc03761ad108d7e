"""Mistral's forms; one parser reads all of them."""

import json
from dataclasses import replace
from typing import Any

from cachefriendly.tools.dialects.mistral import (
    MISTRAL,
    MISTRAL_CALL_ID,
    MISTRAL_LIST,
)
from cachefriendly.tools.stream import Reasoning
from tests.tools.driver import Case
from tests.tools.usual import TOOLS, usual_cases

THINK = Reasoning("[THINK]", "[/THINK]")
ADD = ("add", {"a": 1, "b": 2.5})
ONE = '{"name": "add", "arguments": {"a": 1, "b": 2.5}}'


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


LIST = {
    **usual_cases(
        lambda name, args: f"[TOOL_CALLS][{dump({'name': name, 'arguments': args})}]",
        "",
        "[TOOL_CALLS][{'name': 'add'}]",
        reasoning=THINK.texts,
    ),
    "two in a list": Case(f"[TOOL_CALLS] [{ONE}, {ONE}]", calls=(ADD, ADD)),
    "with an id": Case(
        '[TOOL_CALLS][{"name": "now", "arguments": {}, "id": "abcDEF123"}]', calls=(("now", {}),)
    ),
    "brackets that are text": Case("[INST] is [a, b].", "[INST] is [a, b]."),
    "cut off": Case("[TOOL_CALLS][" + ONE[:-9], invalid=("ended inside",)),
}
HEADED = usual_cases(
    lambda name, args: f"[TOOL_CALLS]{name}[ARGS]{dump(args)}",
    "",
    "[TOOL_CALLS]add[ARGS]{a: 1}",
    reasoning=THINK.texts,
)
WITH_ID = usual_cases(
    lambda name, args: f"[TOOL_CALLS]{name}[CALL_ID]abcdefgh1[ARGS]{dump(args)}",
    "",
    "[TOOL_CALLS]two words[ARGS]{}",
    reasoning=THINK.texts,
)
TABLES = [
    (replace(MISTRAL_LIST, reasoning=THINK), TOOLS, LIST),
    (replace(MISTRAL, reasoning=THINK), TOOLS, HEADED),
    (replace(MISTRAL_CALL_ID, reasoning=THINK), TOOLS, WITH_ID),
]

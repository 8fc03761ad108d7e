"""Dialects whose arguments stand one by one between tags."""

import json
from collections.abc import Callable
from typing import Any

from cachefriendly.prefix import common_prefix
from cachefriendly.tools.dialects import glm, qwen3_coder
from cachefriendly.tools.dialects import tags as tagged
from tests.tools.driver import Case
from tests.tools.usual import TOOLS, usual_cases

THINK = ("<think>", "</think>")
ADD = {"text": "Bern", "a": 1}


def spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def tags(head: str, argument: str, tail: str) -> Callable[[str, dict[str, Any]], str]:
    """``head`` holds NAME, ``argument`` KEY and VALUE."""

    def write(name: str, arguments: dict[str, Any]) -> str:
        inner = (
            argument.replace("KEY", key).replace("VALUE", spelled(value))
            for key, value in arguments.items()
        )
        return head.replace("NAME", name) + "".join(inner) + tail

    return write


QWEN = tags(
    "<tool_call>\n<function=NAME>\n",
    "<parameter=KEY>\nVALUE\n</parameter>\n",
    "</function>\n</tool_call>",
)
GLM = tags(
    "<tool_call>NAME\n",
    "<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n",
    "</tool_call>",
)
TIGHT = tags(
    "<tool_call>NAME", "<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>", "</tool_call>"
)


def unclosed(write: Callable[[str, dict[str, Any]], str], close: str) -> dict[str, Case]:
    """Arguments whose closing tag is missing, and text that only looks like it."""
    call = write("add", ADD)
    one, none = write("add", {"a": 1}), write("add", {})
    argument = one[common_prefix(one, none) : one.rfind(close) + len(close)]
    example = {"text": f"Write <{argument} there.", "a": 1}
    return {
        "the first argument not closed": Case(call.replace(close, "", 1), invalid=("not closed",)),
        "a whole argument inside a text": Case(write("add", example), calls=(("add", example),)),
    }


QWEN_CASES = {
    **unclosed(QWEN, "</parameter>"),
    "an argument not closed in the first of two": Case(
        f"{QWEN('add', ADD).replace('</parameter>', '', 1)}\n{QWEN('now', {})}",
        calls=(("now", {}),),
        invalid=("not closed",),
    ),
    **usual_cases(
        QWEN,
        "\n",
        "<tool_call>\n<function=add>\n<parameter=a>\n1\n</function>\n</tool_call>",
        reasoning=THINK,
    ),
    "text keeps its line breaks": Case(
        QWEN("add", {"text": "\n a\n\n"}), calls=(("add", {"text": "\n a\n\n"}),)
    ),
    "markup and the closing tags inside a text": Case(
        QWEN("add", {"text": "<b></tool_call></function></b>", "a": 1}),
        calls=(("add", {"text": "<b></tool_call></function></b>", "a": 1}),),
    ),
    "a closing tag of an argument inside a text": Case(
        QWEN("add", {"text": "x\n</parameter>\ny", "a": 1}),
        calls=(("add", {"text": "x\n</parameter>\ny", "a": 1}),),
    ),
    "python values": Case(
        QWEN("add", {"flag": "False", "deep": "{'x': None}", "a": "7"}),
        calls=(("add", {"flag": False, "deep": {"x": None}, "a": 7}),),
    ),
    "a value of another type stays text": Case(
        QWEN("add", {"a": "seven"}), calls=(("add", {"a": "seven"}),)
    ),
    "an unknown tool": Case(
        QWEN("other", {"x": "1", "y": "one", "z": "[1]"}),
        calls=(("other", {"x": 1, "y": "one", "z": [1]}),),
    ),
    "the outer tag left out": Case(
        "Well.\n" + QWEN("add", {"a": 1}).removeprefix("<tool_call>\n"),
        "Well.",
        (("add", {"a": 1}),),
    ),
    "cut off in a value": Case(QWEN("add", {"a": 1})[:-40], invalid=("ended inside",)),
    "JSON in the tag": Case(
        '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
        calls=(("add", {"a": 1}),),
    ),
    "nothing in the tag": Case("<tool_call>\nadd\n</tool_call> ok", "ok", invalid=("malformed",)),
    "an argument before any function": Case(
        "<tool_call>\n<parameter=a>\n<function=add>\n</tool_call>", invalid=("malformed",)
    ),
}
GLM_CASES = {
    **unclosed(GLM, "</arg_value>"),
    **usual_cases(GLM, "\n", "<tool_call>add\n<arg_key>a</arg_key>\n</tool_call>", reasoning=THINK),
    "JSON in the tag": Case(
        '<tool_call>{"name": "add"}</tool_call>', invalid=("no name of a tool",)
    ),
    "markup inside a text": Case(
        GLM("add", {"text": "<arg>a < b</arg>\n"}), calls=(("add", {"text": "<arg>a < b</arg>\n"}),)
    ),
}
HUNYUAN = tags(
    "<tool_calls:opensource>\n<tool_call:opensource>NAME<tool_sep:opensource>\n",
    "<arg_key:opensource>KEY</arg_key:opensource>\n"
    "<arg_value:opensource>VALUE</arg_value:opensource>\n",
    "</tool_call:opensource>\n</tool_calls:opensource>",
)
SEED = tags(
    "<seed:tool_call>\n<function=NAME>\n",
    "<parameter=KEY>VALUE</parameter>\n",
    "</function>\n</seed:tool_call>",
)
MINIMAX = tags(
    '<minimax:tool_call>\n<invoke name="NAME">\n',
    '<parameter name="KEY">VALUE</parameter>\n',
    "</invoke>\n</minimax:tool_call>",
)
MINICPM = tags('<function name="NAME">', '<param name="KEY">VALUE</param>', "</function>")

TABLES = [
    (qwen3_coder.QWEN3_CODER, TOOLS, QWEN_CASES),
    (glm.GLM, TOOLS, GLM_CASES),
    (
        glm.GLM_TIGHT,
        TOOLS,
        {
            **usual_cases(TIGHT, "", "<tool_call>add<arg_value>1</tool_call>", reasoning=THINK),
            **unclosed(TIGHT, "</arg_value>"),
        },
    ),
    (
        tagged.HUNYUAN,
        TOOLS,
        {
            **usual_cases(
                HUNYUAN,
                "\n",
                "<tool_calls:opensource>\nadd\n</tool_calls:opensource>",
                reasoning=("<think:opensource>", "</think:opensource>"),
            ),
            **unclosed(HUNYUAN, "</arg_value:opensource>"),
        },
    ),
    (
        tagged.SEED,
        TOOLS,
        {
            **usual_cases(SEED, "\n", "<seed:tool_call>\nadd\n</seed:tool_call>"),
            **unclosed(SEED, "</parameter>"),
        },
    ),
    (
        tagged.MINIMAX,
        TOOLS,
        {
            **unclosed(MINIMAX, "</parameter>"),
            **usual_cases(
                MINIMAX,
                "\n",
                '<minimax:tool_call>\n<invoke name="add"\n</minimax:tool_call>',
                reasoning=THINK,
            ),
            "two in one block": Case(
                '<minimax:tool_call>\n<invoke name="now">\n</invoke>\n<invoke name="add">\n'
                '<parameter name="a">1</parameter>\n</invoke>\n</minimax:tool_call>',
                calls=(("now", {}), ("add", {"a": 1})),
            ),
        },
    ),
    (
        tagged.MINICPM,
        TOOLS,
        {
            **usual_cases(MINICPM, "\n", '<function name="add">a = 1</function>', reasoning=THINK),
            **unclosed(MINICPM, "</param>"),
            "an opening tag in a section": Case(
                MINICPM("add", {"text": '<![CDATA[<param name="b">]]>'}),
                calls=(("add", {"text": '<param name="b">'}),),
            ),
            "markup in a section": Case(
                MINICPM("add", {"text": "<![CDATA[<b>\n&]]>"}), calls=(("add", {"text": "<b>\n&"}),)
            ),
        },
    ),
]

"""Dialects whose calls are JSON behind an opening text; json_blocks.py has what they share."""

import json
from dataclasses import replace
from typing import Any

from cachefriendly.tools.dialects import blocks
from cachefriendly.tools.dialects.functionary import FunctionaryDialect
from cachefriendly.tools.stream import Reasoning
from tests.tools.driver import Case
from tests.tools.usual import TOOLS, usual_cases

THINK = ("<think>", "</think>")
INNER = ("<|inner_prefix|>", "<|inner_suffix|>")
STEPS = ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]")
COHERE = ("<|START_THINKING|>", "<|END_THINKING|>")


def dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def named(name: str, arguments: Any) -> str:
    return dump({"name": name, "arguments": arguments})


ADD = {"a": 1, "b": 2.5}
FUNCTIONARY = {
    **usual_cases(lambda name, args: f"{name}\n{dump(args)}", ">>>", "add\n{a: 1}"),
    "text only": Case("all\nHello {there}.\n", "Hello {there}.\n"),
    "text before": Case(f"all\nLet me see.>>>add\n{dump(ADD)}", "Let me see.", (("add", ADD),)),
    "no recipient": Case("Hello there.", "Hello there."),
    "one word": Case("Hello", "Hello"),
}
COHERE_CASES = {
    **usual_cases(
        lambda name, args: (
            "<|START_ACTION|>[\n    "
            + dump({"tool_call_id": "0", "tool_name": name, "parameters": args})
            + "\n]<|END_ACTION|>"
        ),
        "\n",
        "<|START_ACTION|>[{]<|END_ACTION|>",
        reasoning=COHERE,
    ),
    "marked text": Case("<|START_RESPONSE|>It is 3.<|END_RESPONSE|>", "It is 3."),
}

TABLES = [
    (
        replace(blocks.APERTUS, reasoning=Reasoning(*INNER)),
        TOOLS,
        usual_cases(
            lambda name, args: f"<|tools_prefix|>[{dump({name: args})}]<|tools_suffix|>",
            "",
            '<|tools_prefix|>[{"a": {}, "b": {}}]<|tools_suffix|>',
            reasoning=INNER,
        ),
    ),
    (
        replace(blocks.APRIEL, reasoning=Reasoning(*STEPS)),
        TOOLS,
        usual_cases(
            lambda name, args: f"<tool_calls>[{named(name, args)}]</tool_calls>",
            "\n",
            "<tool_calls>[{'name': 'add'}]</tool_calls>",
            reasoning=STEPS,
        ),
    ),
    (
        blocks.MINIMAX_M1,
        TOOLS,
        usual_cases(
            lambda name, args: f"<tool_calls>\n{named(name, args)}\n</tool_calls>",
            "\n",
            '<tool_calls>\n{"name": 3}\n</tool_calls>',
            reasoning=THINK,
        ),
    ),
    (
        blocks.GRANITE3,
        TOOLS,
        usual_cases(
            lambda name, args: f"<|tool_call|>[{named(name, args)}]", "\n", "<|tool_call|>[{]"
        ),
    ),
    (replace(blocks.COHERE, reasoning=Reasoning(*COHERE)), TOOLS, COHERE_CASES),
    (
        blocks.COMMAND_R_PLUS,
        TOOLS,
        usual_cases(
            lambda name, args: (
                "Action:\n```json\n"
                + json.dumps(
                    [{"tool_name": name, "parameters": args}], indent=4, ensure_ascii=False
                )
                + "\n```"
            ),
            "\n",
            "Action:\n```json\n[{]\n```",
        ),
    ),
    (
        blocks.FIREFUNCTION,
        TOOLS,
        usual_cases(
            lambda name, args: f" functools[{named(name, args)}]", "\n", " functools[{'name': 3}]"
        ),
    ),
    (
        blocks.GIGACHAT3,
        TOOLS,
        usual_cases(
            lambda name, args: "<|message_sep|>\n\nfunction call<|role_sep|>\n" + named(name, args),
            "",
            "function call<|role_sep|>\nadd(1)",
        ),
    ),
    (
        blocks.GIGACHAT,
        TOOLS,
        usual_cases(
            lambda name, args: "<|function_call|>" + named(name, args), "", "<|function_call|>add"
        ),
    ),
    (
        blocks.FUNCTIONARY_TAG,
        TOOLS,
        usual_cases(
            lambda name, args: f"<function={name}>{dump(args)}</function>",
            "",
            "<function=add>a = 1</function>",
        ),
    ),
    (FunctionaryDialect(), TOOLS, FUNCTIONARY),
    (
        replace(blocks.SOLAR, reasoning=Reasoning("<|think|>", "<|end|>")),
        TOOLS,
        usual_cases(
            lambda name, args: (
                "<|begin|>assistant<|tool_calls|><|tool_call:begin|>x1"
                f"<|tool_call:name|>{name}<|tool_call:args|>{dump(args)}<|tool_call:end|>"
            ),
            "",
            "<|tool_call:begin|>x<|tool_call:name|>add<|tool_call:args|>{<|tool_call:end|>",
            reasoning=("<|think|>", "<|end|>"),
        ),
    ),
]

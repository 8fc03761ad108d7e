"""CASES.md 1 to 8, through the whole engine: ids that a template or a framework would change."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from cachefriendly import ChatRequest, Engine, Message, MissReason, Sampling, Tool
from cachefriendly.testing import templates
from tests.engine.cases import ADD, WEATHER, MakeEngine, ask


def test_case_1_empty_think_block_costs_nothing(make_engine: MakeEngine) -> None:
    engine = make_engine(templates.EMPTY_THINK_IN_PROMPT)
    arguments = {"enable_thinking": False}
    talk = [Message("user", "one")]
    known: tuple[int, ...] = ()
    for turn in ("first answer", "second answer", "third answer"):
        result = ask(engine, talk, turn, template_arguments=arguments)
        assert result.prompt_ids[: len(known)] == known
        assert result.report.reused_tokens == len(known)
        known = result.prompt_ids + result.output_ids
        talk += [result.message, Message("user", "next")]


@pytest.mark.parametrize("policy", ["append", "template"])
def test_case_2_dropped_reasoning(make_engine: MakeEngine, policy: Any) -> None:
    engine = make_engine(templates.REASONING_DROPPED, history=policy)
    first = ask(engine, [Message("user", "one")], "<think>\nhm\n</think>\n\nyes")
    assert (first.message.reasoning, first.message.content) == ("hm", "yes")
    talk = [Message("user", "one"), first.message, Message("user", "two")]
    second = ask(engine, talk, "no")
    known = first.prompt_ids + first.output_ids
    if policy == "append":
        assert second.prompt_ids[: len(known)] == known
        assert second.report.reused_tokens == len(known)
        assert second.report.losses == ()
    else:
        assert second.report.losses[0].reason is MissReason.TEMPLATE_REWROTE_HISTORY
        assert second.report.losses[0].message_index == 1
        assert "hm" not in engine.tokenizer.decode(second.prompt_ids)
        assert second.report.reused_tokens >= len(first.prompt_ids)


def test_case_3_a_newline_the_model_did_not_write(make_engine: MakeEngine) -> None:
    engine = make_engine(templates.NEWLINE_BEFORE_CALL)
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    talk = [Message("user", "weather?")]
    first = ask(engine, talk, call, tools=(WEATHER,))
    assert first.message.tool_calls[0].arguments == {"city": "Rome"}
    result = Message("tool", "sunny", tool_call_id=first.message.tool_calls[0].id)
    second = ask(engine, [*talk, first.message, result], "Sunny.", tools=(WEATHER,))
    known = first.prompt_ids + first.output_ids
    assert second.prompt_ids[: len(known)] == known
    assert second.report.prefilled_tokens == len(second.prompt_ids) - len(known)


def test_case_4_ids_that_encode_differently_stay(demo_engine: Engine) -> None:
    """'Paris' spelled in single letters is one token when encoded again."""
    letters = [i for char in "Paris" for i in demo_engine.token_ids(char)]
    assert demo_engine.token_ids("Paris") != letters
    talk = [Message("user", "Capital of France?")]
    first = ask(demo_engine, talk, [*letters, demo_engine.tokenizer.eos_token_id])
    second = ask(demo_engine, [*talk, first.message, Message("user", "Sure?")], "Yes.")
    known = first.prompt_ids + tuple(letters)
    assert second.prompt_ids[: len(known)] == known
    assert second.report.reused_tokens == len(known)


def test_case_5_generation_prompt_depends_on_last_role(make_engine: MakeEngine) -> None:
    prompt = "{%- if add_generation_prompt"
    head, tail = templates.NATIVE_TOOLS, templates.PROMPT_BY_LAST_ROLE
    engine = make_engine(head[: head.index(prompt)] + tail[tail.index(prompt) :])
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    talk = [Message("user", "1+2?")]
    first = ask(engine, talk, call, tools=(ADD,))
    talk += [first.message, Message("tool", "3", tool_call_id=first.message.tool_calls[0].id)]
    second = ask(engine, talk, "three", tools=(ADD,))
    assert engine.tokenizer.decode(second.prompt_ids).endswith("Based on the result: ")
    third = ask(engine, [*talk, second.message, Message("user", "ok")], "fine", tools=(ADD,))
    known = second.prompt_ids + second.output_ids
    assert third.prompt_ids[: len(known)] == known
    assert third.report.reused_tokens == len(known)


def test_case_6_key_order_costs_no_ids(demo_engine: Engine) -> None:
    call = (
        '<tool_call>\n{"name": "get_weather", "arguments": {"metric": false, "city": "Rome"}}\n'
        "</tool_call>"
    )
    talk = [Message("user", "Weather in Rome?")]
    first = ask(demo_engine, talk, call, tools=(WEATHER,))
    made = first.message.tool_calls[0]
    shuffled = Message(
        "assistant",
        "",
        tool_calls=(type(made)(made.name, {"city": "Rome", "metric": False}, made.id),),
    )
    schema = json.loads(json.dumps(WEATHER.parameters, sort_keys=True))
    tool = Tool(WEATHER.name, WEATHER.description, schema)
    result = Message("tool", "sunny", tool_call_id=made.id)
    second = ask(demo_engine, [*talk, shuffled, result], "Sunny.", tools=(tool,))
    known = first.prompt_ids + first.output_ids
    assert second.prompt_ids[: len(known)] == known
    assert second.report.reused_tokens == len(known)


def test_case_7_other_hash_seeds_give_equal_ids() -> None:
    """Schemas whose dicts were filled in set order, in two processes."""
    program = """
from cachefriendly import ChatRequest, Message, Tool
from cachefriendly.prompt.builder import PromptBuilder
from cachefriendly.testing import byte_tokenizer, templates
names = {"city", "unit", "day", "hour", "style"}
properties = {name: {"type": "string"} for name in names}
schema = {"type": "object", "properties": properties, "required": ["city"]}
tools = tuple(Tool(name, "d", schema) for name in {"look", "book", "pay", "cancel"})
for template in (templates.CHATML, templates.NATIVE_TOOLS):
    builder = PromptBuilder(byte_tokenizer(template))
    built = builder.build(ChatRequest((Message("user", "hi"),), tools=tools))
    print(list(built.ids))
"""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "HF_HUB_OFFLINE": "1", "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_case_8_booleans_and_empty_arguments(make_engine: MakeEngine) -> None:
    engine = make_engine(templates.PYTHON_BOOLEANS)
    calls = (
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "metric": false}}\n'
        '</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    )
    tools = (WEATHER, Tool("now", "Time", {"type": "object", "properties": {}}))
    talk = [Message("user", "weather and time?")]
    first = ask(engine, talk, calls, tools=tools)
    assert first.message.tool_calls[0].arguments["metric"] is False
    talk.append(first.message)
    talk += [Message("tool", "x", tool_call_id=call.id) for call in first.message.tool_calls]
    second = ask(engine, talk, "done", tools=tools)
    known = first.prompt_ids + first.output_ids
    assert second.prompt_ids[: len(known)] == known
    assert second.report.reused_tokens == len(known)


def test_case_8_a_cut_reply_is_closed_not_restarted(demo_engine: Engine) -> None:
    talk = [Message("user", "Tell me a long story about a dragon.")]
    sampling = Sampling(max_tokens=6, temperature=0)
    request = ChatRequest(tuple(talk), sampling=sampling)
    first = demo_engine.chat(request).result()
    assert first.finish_reason == "length"
    second = ask(demo_engine, [*talk, first.message, Message("user", "Go on.")], "And so on.")
    known = first.prompt_ids + first.output_ids
    assert second.prompt_ids[: len(known)] == known
    # The last chosen id had no keys yet; nothing else is forwarded twice.
    assert second.report.reused_tokens == len(known) - 1
    assert demo_engine.tokenizer.decode(second.prompt_ids[len(known) :]).startswith("<|im_end|>\n")

"""The byte tokenizer is a real one, and each template really has the trap it is named after."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from cachefriendly.testing import byte_tokenizer, templates
from cachefriendly.testing.tokenizer import CONTROL_TOKENS, SPECIAL_TOKENS

USER = {"role": "user", "content": "hi"}
REPLY = {"role": "assistant", "content": "yes"}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": {"on": False, "city": "Ulm"}}}
    ],
}
RESULT = {"role": "tool", "content": "42", "tool_call_id": "call_1"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def render(template, messages, **arguments):
    arguments.setdefault("add_generation_prompt", False)
    return byte_tokenizer(template).apply_chat_template(messages, tokenize=False, **arguments)


def control_free(text):
    return not any(token in text for token in (*SPECIAL_TOKENS, *CONTROL_TOKENS))


@given(st.text().filter(control_free))
def test_plain_text_is_its_utf8_bytes(text):
    tokenizer = byte_tokenizer()
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("token", [*SPECIAL_TOKENS, *CONTROL_TOKENS])
def test_control_tokens_are_one_id(token):
    tokenizer = byte_tokenizer()
    ids = tokenizer(f"a{token}b", add_special_tokens=False).input_ids
    assert len(ids) == 3
    assert ids[1] >= 256
    shown = tokenizer.decode(ids, skip_special_tokens=True)
    assert shown == ("ab" if token in SPECIAL_TOKENS else f"a{token}b")


def test_it_is_a_fast_tokenizer_that_survives_saving(tmp_path):
    tokenizer = byte_tokenizer()
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    text = "<|im_start|>user\nÄ<tool_call></tool_call><|im_end|>"
    assert again(text).input_ids == tokenizer(text).input_ids
    assert again.chat_template == tokenizer.chat_template


@pytest.mark.parametrize("name", templates.ALL)
def test_every_template_renders_a_plain_conversation(name):
    text = render(templates.ALL[name], [USER, REPLY, USER], add_generation_prompt=True)
    assert text.count("<|im_start|>") == text.count("<|im_end|>") + 1
    assert "<|im_start|>assistant\nyes<|im_end|>\n" in text


def test_chatml_is_chatml():
    text = render(templates.CHATML_NO_DEFAULT_SYSTEM, [USER], add_generation_prompt=True)
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert render(templates.CHATML, [USER]).startswith("<|im_start|>system\nYou are")


def test_empty_think_block_is_in_the_prompt_but_not_in_history():
    template = templates.EMPTY_THINK_IN_PROMPT
    prompt = render(template, [USER], add_generation_prompt=True, enable_thinking=False)
    assert prompt.endswith("<think>\n\n</think>\n\n")
    assert "<think>" not in render(template, [USER, REPLY, USER], enable_thinking=False)


def test_reasoning_goes_when_the_next_question_comes():
    thoughtful = {**REPLY, "reasoning_content": "hm"}
    template = templates.REASONING_DROPPED
    assert "<think>\nhm\n</think>" in render(template, [USER, thoughtful])
    assert "<think>" not in render(template, [USER, thoughtful, USER])


def test_native_tools_are_stated_once_in_the_system_block():
    template = templates.NATIVE_TOOLS
    for opening in ([], [{"role": "system", "content": "be brief"}]):
        text = render(template, [*opening, USER, CALL, RESULT], tools=[TOOL])
        assert text.count("<tools>") == 1
        assert text.index("<tools>") < text.index("<|im_end|>")
        assert '<|im_start|>assistant\n<tool_call>\n{"name": "f", "arguments": {"on": false' in text
        assert "<|im_start|>tool\n<tool_response>\n42\n</tool_response><|im_end|>" in text
    assert "<tools>" not in render(template, [USER])


def test_newline_before_a_call_that_nobody_wrote():
    text = render(templates.NEWLINE_BEFORE_CALL, [USER, CALL])
    assert "<|im_start|>assistant\n\n<tool_call>" in text


def test_generation_prompt_depends_on_the_last_role():
    template = templates.PROMPT_BY_LAST_ROLE
    asked = render(template, [USER], add_generation_prompt=True)
    told = render(template, [USER, CALL, RESULT], add_generation_prompt=True)
    assert asked.endswith("<|im_start|>assistant\n")
    assert told.endswith("Based on the result: ")


def test_arguments_come_back_as_python_values():
    text = render(templates.PYTHON_BOOLEANS, [USER, CALL])
    assert "{'on': False, 'city': 'Ulm'}" in text


def test_the_date_stands_before_the_first_message():
    text = render(templates.DATE_NEAR_START, [USER])
    assert text.index("Today is 2") < text.index("hi")


def test_the_last_message_is_not_what_it_will_be():
    template = templates.LAST_MESSAGE_DIFFERS
    assert "[now] hi" in render(template, [USER])
    assert "[now]" not in render(template, [USER, REPLY])

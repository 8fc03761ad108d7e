"""Tool results of templates that know no tools: the template's own role, or a user turn."""

from __future__ import annotations

import pytest

from cachefriendly.messages import Message, ToolCall
from cachefriendly.prompt import PromptBuilder
from cachefriendly.request import ChatRequest
from cachefriendly.testing import byte_tokenizer

ANY_ROLE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
OWN_ROLE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'tool' %}RESULT {% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (ANY_ROLE, "<|im_start|>user\n<tool_response>\nsunny\n</tool_response><|im_end|>"),
        (OWN_ROLE, "<|im_start|>tool\nRESULT sunny<|im_end|>"),
    ],
    ids=["prints any role", "knows the role"],
)
def test_a_result_is_a_user_turn_unless_the_template_knows_its_role(
    template: str, expected: str
) -> None:
    call = ToolCall("weather", {"city": "Ulm"}, id="call_1")
    talk = (
        Message("user", "Weather?"),
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", "sunny", tool_call_id="call_1"),
    )
    built = PromptBuilder(byte_tokenizer(template)).build(ChatRequest(talk))
    assert expected in built.text

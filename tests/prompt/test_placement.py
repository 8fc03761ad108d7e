"""Finding replies in templates that resist, and properties that hold over every template."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachefriendly.events import MissReason
from cachefriendly.messages import Message, ToolCall
from cachefriendly.prompt import PromptBuilder
from cachefriendly.testing import byte_tokenizer, templates
from tests.prompt.driver import WEATHER, Conversation, reference_ids

HEAD = "{%- for m in messages -%}"
TAIL = (
    "{%- endfor -%}{%- if tools -%}{{- '' if tools else '' -}}{%- endif -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
CALLS = (
    "{%- for c in m.tool_calls or [] -%}{{- '<tool_call>' + c.function.name -}}"
    "{{- c.function.arguments | tojson -}}{{- '</tool_call>' -}}{%- endfor -%}"
)
NEEDS_CALLS = (
    "{%- set ns = namespace(name=none) -%}"
    + HEAD
    + "{%- if m.role == 'tool' -%}{%- if ns.name is none -%}"
    + "{{- raise_exception('a result needs a call') -}}{%- endif -%}"
    + "{{- '<|im_start|>' + ns.name + '\\n' + m.content + '<|im_end|>' -}}{%- else -%}"
    + "{%- for c in m.tool_calls or [] -%}{%- set ns.name = c.function.name -%}{%- endfor -%}"
    + "{{- '<|im_start|>' + m.role + '\\n' + m.content -}}"
    + CALLS
    + "{{- '<|im_end|>' -}}{%- endif -%}"
    + TAIL
)
"""Refuses a result without a call, and heads the result with the name of its call."""

RESULT_IN_TURN = (
    HEAD
    + "{%- if m.role == 'tool' -%}{{- '<tool_response>' + m.content + '</tool_response>' -}}"
    + "{%- elif m.tool_calls -%}{{- '<|im_start|>assistant\\n' + m.content -}}"
    + CALLS
    + "{%- else -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' -}}{%- endif -%}"
    + TAIL
)
"""A call does not end its turn: it ends with the tokens that close the call."""

COUNTS_NAMES = NEEDS_CALLS.replace("+ ns.name + '\\n'", "~ ns.name | length ~ '\\n'")
"""Heads the result with what only the real name of its call gives: no stand-in finds its place."""

CALL = ToolCall("get_weather", {"city": "Ulm"}, "call_1")
CALL_IDS = list(b"<call get_weather Ulm>")


def tool_chat(template: str, policy: str = "template") -> Conversation:
    chat = Conversation(PromptBuilder(byte_tokenizer(template), policy=policy), [WEATHER])
    chat.add("user", "Weather?")
    chat.reply(CALL_IDS, Message("assistant", "", tool_calls=(CALL,)))
    chat.add("tool", "sunny get_weather", tool_call_id="call_1")
    return chat


@pytest.mark.parametrize("policy", ["template", "append"])
def test_a_template_that_wants_calls_before_results(policy):
    chat = tool_chat(NEEDS_CALLS, policy)
    result = "<|im_end|><|im_start|>get_weather\nsunny get_weather<|im_end|>"
    assert chat.builder.tokens.decode(chat.new_ids()) == f"{result}<|im_start|>assistant\n"
    chat.reply(list(b"Sun."), Message("assistant", "Sun."))
    chat.add("user", "Thanks")
    assert chat.new_ids()


def test_a_call_that_does_not_end_its_turn_is_kept():
    chat = tool_chat(RESULT_IN_TURN)
    result = "</tool_call><tool_response>sunny get_weather</tool_response>"
    assert chat.builder.tokens.decode(chat.new_ids()) == f"{result}<|im_start|>assistant\n"
    chat.reply(list(b"Sun."), Message("assistant", "Sun."))
    chat.add("user", "Thanks")
    after = "<|im_end|><|im_start|>user\nThanks<|im_end|><|im_start|>assistant\n"
    assert chat.builder.tokens.decode(chat.new_ids()) == after


def test_a_call_that_cannot_be_placed_is_rendered_and_named():
    chat = tool_chat(COUNTS_NAMES)
    built = chat.prompt()
    (loss,) = built.losses
    assert (loss.reason, loss.message_index) == (MissReason.TEMPLATE_REWROTE_HISTORY, 1)
    assert built.ids == tuple(chat.builder.encode_text(built.text))
    assert '<tool_call>get_weather{"city": "Ulm"}</tool_call>' in built.text
    assert not any(span.source == "recorded" for span in built.spans)


def test_a_plain_text_template_keeps_recorded_ids():
    template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    chat = Conversation(PromptBuilder(byte_tokenizer(template)))
    chat.add("user", "a")
    chat.reply(list(b" b"), Message("assistant", "b"))
    chat.add("user", "c")
    assert chat.builder.tokens.decode(chat.new_ids()) == "\n\nuser: c\n\nassistant:"


WORDS = st.text("ab \n", max_size=6)
ANSWER = st.tuples(
    st.lists(st.integers(32, 126), max_size=6), WORDS, st.none() | WORDS, st.booleans()
)
TEMPLATE = st.sampled_from(sorted(set(templates.ALL) - {"DATE_NEAR_START"}))
FLOW = st.lists(st.tuples(WORDS, ANSWER), min_size=1, max_size=5)


def answer(ids, content, reasoning, calls) -> tuple[list[int], Message]:
    """Ids and message need not fit: what was recorded for a message is what counts."""
    made = (CALL,) if calls else ()
    return ids, Message("assistant", content, tool_calls=made, reasoning=reasoning)


def play(chat: Conversation, flow) -> None:
    for text, given_answer in flow:
        after_call = chat.messages and chat.messages[-1].tool_calls
        role = {"role": "tool", "tool_call_id": "call_1"} if after_call else {"role": "user"}
        chat.add(content=text, **role)
        chat.reply(*answer(*given_answer))
    chat.add("user", "end")


@given(TEMPLATE, FLOW)
def test_append_extends_whatever_was_generated(name, flow):
    chat = Conversation(PromptBuilder(byte_tokenizer(templates.ALL[name]), policy="append"))
    for turn in range(len(flow)):
        chat.messages.clear()
        play(chat, flow[: turn + 1])
        assert chat.prompt().ids[: len(chat.held)] == chat.held
        assert chat.prompt().losses == ()


@given(TEMPLATE, FLOW)
def test_exact_is_the_full_render(name, flow):
    tokenizer = byte_tokenizer(templates.ALL[name])
    chat = Conversation(PromptBuilder(tokenizer, policy="exact"))
    play(chat, [(text, (list(a[1].encode()), a[1], None, False)) for text, a in flow])
    built = chat.prompt()
    assert built.text == tokenizer.decode(reference_ids(tokenizer, chat.messages))
    assert built.text == tokenizer.decode(built.ids)


@given(TEMPLATE, FLOW)
def test_spans_cover_the_prompt_and_recorded_ids_are_those_generated(name, flow):
    builder = PromptBuilder(byte_tokenizer(templates.ALL[name]))
    chat = Conversation(builder)
    play(chat, flow)
    built = chat.prompt()
    assert [span.start for span in built.spans][1:] == [span.stop for span in built.spans][:-1]
    assert (built.spans[0].start, built.spans[-1].stop) == (0, len(built.ids))
    for span in built.spans:
        if span.source == "recorded":
            message = chat.messages[span.message_index]
            assert message.role == "assistant"
    kept = 0
    for a, b in zip(built.ids, chat.held, strict=False):
        if a != b:
            break
        kept += 1
    assert bool(built.losses) == (kept < len(chat.held))


@pytest.mark.parametrize("sent", ["hi", " hi \n", "hi\n\n"])
def test_exact_shows_a_reply_as_it_came_back(sent):
    """Frameworks strip replies; the record stands only for what the caller's message prints."""
    tokenizer = byte_tokenizer(templates.CHATML)
    chat = Conversation(PromptBuilder(tokenizer, policy="exact"))
    chat.add("user", "q")
    reply = Message("assistant", " hi \n")
    chat.reply(list(b" hi \n"), reply, returned=Message("assistant", sent))
    chat.add("user", "n")
    built = chat.prompt()
    assert built.ids == reference_ids(tokenizer, chat.messages)
    assert any(span.source == "recorded" for span in built.spans) is (sent == reply.content)


@pytest.mark.parametrize(
    ("reasoning", "content"), [("Paris", "Paris."), ("a", "banana"), ("x", "x"), ("The", "The The")]
)
def test_dropped_reasoning_that_the_content_spells_too(reasoning, content):
    tokenizer = byte_tokenizer(templates.REASONING_DROPPED)
    chat = Conversation(PromptBuilder(tokenizer))
    chat.add("user", "q")
    ids = [262, *f"\n{reasoning}\n".encode(), 263, *f"\n\n{content}".encode()]
    chat.reply(ids, Message("assistant", content, reasoning=reasoning))
    chat.add("assistant", "and more")
    assert chat.new_ids()
    chat.messages[2] = Message("user", "n")
    assert chat.prompt().ids == reference_ids(tokenizer, chat.messages)

"""Without recorded replies and control tokens the ids are those of `apply_chat_template`."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cachefriendly.errors import RequestError, TemplateError
from cachefriendly.messages import Message
from cachefriendly.openai_forms import tool_to_openai
from cachefriendly.prompt import PromptBuilder, prompt_fingerprint
from cachefriendly.prompt.canonical_tools import canonical_tools
from cachefriendly.request import ChatRequest
from cachefriendly.testing import byte_tokenizer, templates
from tests.prompt.driver import WEATHER, reference_ids, wire

TEXT = st.text(
    st.one_of(
        st.sampled_from(" \n\t.,<|>{}'\"\\é漢\U0001f600\ue0b0\U00100000"),
        st.characters(exclude_categories=("Cs",)),
    ),
    max_size=30,
).filter(lambda text: "|>" not in text)  # hypothesis finds control tokens in the sources by itself
TURN = st.tuples(st.sampled_from(["user", "assistant"]), TEXT)
TURNS = st.tuples(st.booleans(), TEXT, st.lists(TURN, min_size=1, max_size=6))


@pytest.fixture(scope="module")
def demo_builder(tokenizer_with):
    return PromptBuilder(tokenizer_with())


@given(TURNS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ids_equal_apply_chat_template(demo_builder, demo_tokenizer, turns):
    with_system, system, rest = turns
    messages = [Message("system", system)] if with_system else []
    messages += [Message(role, content) for role, content in rest]
    built = demo_builder.build(ChatRequest(tuple(messages)))
    expected = demo_tokenizer.apply_chat_template(
        wire(messages), add_generation_prompt=True, tokenize=False
    )
    assert built.text == expected
    assert built.ids == reference_ids(demo_tokenizer, messages)


@pytest.mark.parametrize("name", sorted(templates.ALL))
@pytest.mark.parametrize("policy", ["template", "exact", "append"])
def test_every_template_equals_apply_chat_template(name, policy):
    if name == "DATE_NEAR_START":
        pytest.skip("prints the time of rendering")
    tokenizer = byte_tokenizer(templates.ALL[name])
    messages = [Message("system", "Be brief."), Message("user", " a\n"), Message("assistant", "b")]
    messages.append(Message("user", "<c>"))
    built = PromptBuilder(tokenizer, policy=policy).build(ChatRequest(tuple(messages)))
    assert built.ids == reference_ids(tokenizer, messages)
    assert "".join(tokenizer.decode(built.ids)) == built.text


def test_native_tools_equal_apply_chat_template():
    tokenizer = byte_tokenizer(templates.NATIVE_TOOLS)
    messages = (Message("user", "hi"),)
    built = PromptBuilder(tokenizer).build(ChatRequest(messages, tools=(WEATHER,)))
    tools = [tool_to_openai(tool) for tool in canonical_tools([WEATHER])]
    assert built.ids == reference_ids(tokenizer, messages, tools=tools)


def test_tools_are_described_once_behind_the_default_system_text(demo_builder):
    built = demo_builder.build(ChatRequest((Message("user", "hi"),), tools=(WEATHER,)))
    start = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    )
    assert built.text.startswith(start)
    assert built.text.count('"get_weather"') == 1
    assert built.text.count("<|im_start|>system") == 1


def test_history_only(demo_builder, demo_tokenizer):
    messages = (Message("user", "hi"),)
    built = demo_builder.build(ChatRequest(messages), generation_prompt=False)
    assert not built.text.endswith("assistant\n")
    full = demo_builder.build(ChatRequest(messages))
    assert full.ids[: len(built.ids)] == built.ids


def test_a_tokenizer_without_template_says_how_to_set_one():
    with pytest.raises(TemplateError, match=r"tokenizer\.chat_template"):
        PromptBuilder(byte_tokenizer(None))


def test_a_template_that_does_not_compile():
    with pytest.raises(TemplateError, match="does not compile"):
        PromptBuilder(byte_tokenizer("{% for %}"))


def test_the_templates_own_words_are_in_the_error():
    refusing = "{{ raise_exception('roles must alternate') if messages|length > 1 }}"
    builder = PromptBuilder(byte_tokenizer(refusing + templates.CHATML))
    with pytest.raises(TemplateError, match="roles must alternate"):
        builder.build(ChatRequest((Message("user", "a"), Message("user", "b"))))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"messages": []}, "set by the engine"), ({"x": object()}, "plain JSON data")],
)
def test_template_arguments(demo_builder, arguments, words):
    with pytest.raises(RequestError, match=words):
        demo_builder.build(ChatRequest((Message("user", "x"),), template_arguments=arguments))


def test_fingerprint_depends_on_each_part():
    first, other = byte_tokenizer(), byte_tokenizer()
    other.add_tokens(["<extra>"])
    prints = {
        prompt_fingerprint(first, "a", {}),
        prompt_fingerprint(other, "a", {}),
        prompt_fingerprint(first, "b", {}),
        prompt_fingerprint(first, "a", {"enable_thinking": False}),
    }
    assert len(prints) == 4
    assert prompt_fingerprint(byte_tokenizer(), "a", {}) in prints

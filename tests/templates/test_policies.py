"""Every public template, four model calls with made-up ids, under each history policy."""

from __future__ import annotations

import functools
import re

import pytest

from cachefriendly.prompt import PromptBuilder
from cachefriendly.testing.template_survey import fitting_talk
from cachefriendly.testing.template_talk import MOMENT, Renderer, run_talk
from tests.templates.conftest import NAMES, exception, tokenizer_of

_CALL_ID = re.compile(r',\s*"id":\s*"\w+"')
_EMPTY_THOUGHT = re.compile(r"(<[\w:]*think[\w:]*>)?</[\w:]*think[\w:]*>")


def content_of(text):
    """Without whitespace, JSON spelling and empty think blocks."""
    return _EMPTY_THOUGHT.sub("", "".join(text.split()))


@functools.cache
def conversation(name, policy):
    builder = PromptBuilder(tokenizer_of(name), policy=policy, now=lambda: MOMENT)
    talk = fitting_talk(builder, exception(name, "arguments"))
    steps = run_talk(builder, tokenizer_of(name), talk, restyled=True)
    assert len(steps) == 4
    for step in steps:
        assert tokenizer_of(name).decode(step.built.ids) == step.built.text
    return steps, Renderer(builder.prepared(with_tools=True), talk)


def test_there_are_71_templates():
    if not NAMES:
        pytest.skip("no .templates/: run `make templates`")
    assert len(NAMES) == 71


def test_made_up_ids_are_not_what_the_tokenizer_makes_of_their_text(name):
    steps, _ = conversation(name, "append")
    tokenizer = tokenizer_of(name)
    for step in steps[1:]:
        again = tokenizer.encode(tokenizer.decode(step.held), add_special_tokens=False)
        assert tuple(again) != step.held


def test_exact_is_the_full_render(name):
    steps, render = conversation(name, "exact")
    for step in steps:
        assert step.built.text == render(step.sent, moment=MOMENT)


def test_template_says_what_the_full_render_says(name):
    steps, render = conversation(name, "template")
    ignored = [re.escape(text) for text in exception(name, "not_content") or ()]
    blind = re.compile("|".join([*ignored, _CALL_ID.pattern]))
    for step in steps:
        full = blind.sub("", render(step.messages, moment=MOMENT))
        assert content_of(full) == content_of(blind.sub("", step.built.text))


def test_append_only_appends(name):
    steps, _ = conversation(name, "append")
    for step in steps[1:]:
        assert step.built.ids[: len(step.held)] == step.held
        assert step.built.losses == ()


def test_parts_left_out_are_exceptions_with_a_reason(name):
    features = PromptBuilder(tokenizer_of(name)).prepared(with_tools=True).features
    lacking = {
        part
        for part, taken in (
            ("system", features.system),
            ("tools", features.tools),
            ("calls", features.calls),
            ("mapping_arguments", not features.arguments_as_text),
        )
        if not taken
    }
    assert lacking == set(exception(name, "lacks") or {})

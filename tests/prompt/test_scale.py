"""Long conversations: the work of a build does not grow with the number of known replies."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from cachefriendly.messages import Message
from cachefriendly.prompt import BuiltPrompt, PromptBuilder
from cachefriendly.prompt.template import ChatTemplate
from cachefriendly.prompt.tokens import TextTokenizer
from cachefriendly.request import ChatRequest
from cachefriendly.testing import byte_tokenizer, templates

# Encoded once more by itself: where the history ends is where the next prompt may part from this.
GENERATION_PROMPT = "<|im_start|>assistant\n"


def grown(builder: PromptBuilder, turns: int) -> tuple[tuple[Message, ...], tuple[int, ...]]:
    """A conversation of ``turns`` turns, every eighth of them recorded, and what is held of it."""
    messages: tuple[Message, ...] = ()
    held: tuple[int, ...] = ()
    for turn in range(turns):
        messages += (Message("user", f"question {turn}"),)
        reply = Message("assistant", f"answer {turn}")
        if turn % 8:
            messages += (reply,)
            continue
        built = builder.build(ChatRequest(messages))
        assert built.ids[: len(held)] == held
        ids = builder.encode_text(reply.content)
        builder.commit(built, ids, reply)
        messages += (reply,)
        held = built.ids + tuple(ids)
    return messages, held


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Renderings, and texts and characters given to the tokenizer."""
    counts: Counter[str] = Counter()
    render, encode = ChatTemplate.render, TextTokenizer.encode

    def counted_render(self: ChatTemplate, *args: Any, **options: Any) -> str:
        counts["renders"] += 1
        return render(self, *args, **options)

    def counted_encode(self: TextTokenizer, text: str, **options: Any) -> list[int]:
        counts["encodes"] += 1
        counts["characters"] += len(text)
        return encode(self, text, **options)

    monkeypatch.setattr(ChatTemplate, "render", counted_render)
    monkeypatch.setattr(TextTokenizer, "encode", counted_encode)
    return counts


def next_call(builder: PromptBuilder, messages: tuple[Message, ...]) -> BuiltPrompt:
    return builder.build(ChatRequest((*messages, Message("user", "and now?"))))


@pytest.mark.parametrize("turns", [9, 257])
def test_a_build_renders_three_times_and_encodes_what_is_new(work, turns):
    builder = PromptBuilder(byte_tokenizer(templates.CHATML))
    messages, held = grown(builder, turns)
    work.clear()
    built = next_call(builder, messages)
    assert built.ids[: len(held)] == held
    assert sum(span.source == "recorded" for span in built.spans) == turns // 8 + 1
    new = len(builder.tokens.decode(built.ids[len(held) :]))
    assert work == {"renders": 3, "encodes": 2, "characters": new + len(GENERATION_PROMPT)}


def test_an_unknown_history_is_one_text(work):
    builder = PromptBuilder(byte_tokenizer(templates.CHATML))
    messages = tuple(Message("user", f"turn {number}") for number in range(200))
    work.clear()
    built = next_call(builder, messages)
    head = built.text.partition("turn 0")[0]
    characters = len(built.text) + len(GENERATION_PROMPT) + len(head)
    assert work == {"renders": 3, "encodes": 3, "characters": characters}
    assert built.prefix_tokens == len(builder.encode_text(head))


def test_the_length_of_a_known_head_is_not_found_again(work):
    builder = PromptBuilder(byte_tokenizer(templates.CHATML))
    next_call(builder, (Message("system", "Be brief."),))
    work.clear()
    built = builder.build(ChatRequest((Message("system", "Be brief."), Message("user", "Hi"))))
    characters = len(built.text) + len(GENERATION_PROMPT)
    assert work == {"renders": 2, "encodes": 2, "characters": characters}

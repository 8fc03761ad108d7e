"""Prompts over every usual kind of tokenizer: stretches, recorded ids, streaming, stop strings."""

from __future__ import annotations

import functools
import itertools
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from transformers import ByT5Tokenizer

from cachefriendly.engine.stop import StopWatch
from cachefriendly.messages import Message
from cachefriendly.prompt import PromptBuilder, StreamDecoder
from cachefriendly.request import ChatRequest
from cachefriendly.testing import templates
from tests.long.odd_tokenizers import KINDS, odd_tokenizer

# Many kinds times many texts: a third of the usual depth each.
THIRD = settings(max_examples=settings.default.max_examples // 3, deadline=None)
HISTORIES = ("template", "exact", "append")
TEXT = st.text(
    st.one_of(
        st.sampled_from(
            " \n\t.,'12aeo\u00e9e\u0301\u6f22\U0001f600\u200d\ue0b0\U00100000\u2581\u00a0\x00"
        ),
        st.characters(exclude_categories=("Cs",)),
    ),
    max_size=30,
).filter(lambda text: "|>" not in text)
TURNS = st.lists(TEXT, min_size=1, max_size=5)
WORDS = (
    AddedToken("<tab>", lstrip=True, rstrip=True, normalized=False),
    AddedToken("ship", single_word=True, normalized=False),
    AddedToken("Harbour", normalized=True),
    AddedToken("<left>", lstrip=True),
)
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bos": {"bos": True},
    "added": {"added": WORDS},
    "rstrip": {"rstrip": True},
    "lstrip": {"lstrip": True},
    "normalized": {"normalized": True},
}
CASES = [(kind, "plain") for kind in KINDS] + [
    (kind, variant)
    for kind in ("byte level", "fallback, first", "unigram, always")
    for variant in VARIANTS
    if variant != "plain"
]


@functools.cache
def tokenizer_of(kind: str, variant: str = "plain") -> Any:
    return odd_tokenizer(kind, **VARIANTS[variant])


@functools.cache
def builder_of(kind: str, variant: str = "plain", history: Any = "template") -> PromptBuilder:
    return PromptBuilder(tokenizer_of(kind, variant), policy=history)


def conversation(texts: list[str]) -> tuple[Message, ...]:
    roles = itertools.cycle(["user", "assistant"])
    return tuple(Message(role, text) for role, text in zip(roles, texts, strict=False))  # type: ignore[arg-type]


def check_prompt(kind: str, variant: str, texts: list[str]) -> None:
    """The ids of the render, and those of transformers' own `apply_chat_template`."""
    tokenizer, messages = tokenizer_of(kind, variant), conversation(texts)
    built = builder_of(kind, variant).build(ChatRequest(messages))
    wire = [{"role": m.role, "content": m.content} for m in messages]
    expected = tokenizer.apply_chat_template(wire, add_generation_prompt=True)["input_ids"]
    assert list(built.ids) == expected


@pytest.mark.parametrize(("kind", "variant"), CASES)
@THIRD
@given(texts=TURNS)
def test_a_prompt_has_the_ids_of_its_whole_text(kind, variant, texts):
    check_prompt(kind, variant, texts)


@pytest.mark.parametrize(("kind", "variant"), CASES)
@pytest.mark.parametrize(
    "text",
    [
        " <tab>  x",
        "ship ships ship.",
        "harbour Harbour  Harbour",
        "a <left>b <left>",
        " \n ",
        "\x00",
        "\x1f",
    ],
)
def test_added_tokens_inside_content(kind, variant, text):
    check_prompt(kind, variant, [text, text + " ", text])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("history", HISTORIES)
def test_recorded_ids_are_kept(kind, history):
    """Ids that no tokenizer would choose: single pieces in random order."""
    builder = PromptBuilder(tokenizer_of(kind), policy=history)
    messages: list[Message] = []
    held: tuple[int, ...] = ()
    ordinary = [i for i in range(20, 140) if i not in builder.tokens.controls.ids]
    for turn in range(4):
        messages.append(Message("user", f"question {turn}\u00e9"))
        built = builder.build(ChatRequest(tuple(messages)))
        assert built.ids[: len(held)] == held
        assert built.losses == ()
        output = [ordinary[(turn * 31 + step * 7) % len(ordinary)] for step in range(12)]
        reply = Message("assistant", builder.tokens.decode_after(output))
        builder.commit(built, output, reply)
        messages.append(reply)
        held = built.ids + tuple(output)


def streamed(decoder: StreamDecoder, ids: list[int], cuts: list[int]) -> tuple[str, list[str]]:
    bounds = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    pieces = [decoder.push(ids[a:b]) for a, b in itertools.pairwise(bounds)] + [decoder.flush()]
    return "".join(pieces), pieces


@pytest.mark.parametrize("kind", KINDS)
@THIRD
@given(text=TEXT, cuts=st.lists(st.integers(0, 200), max_size=6))
def test_streamed_text_is_the_text_of_the_whole(kind, text, cuts):
    builder = builder_of(kind)
    ids = list(builder.tokens.encode_stretch(text))
    whole = builder.tokens.decode_after(ids)
    joined, pieces = streamed(builder.decoder(), ids, cuts)
    assert joined == whole
    if "\ufffd" not in whole:
        assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("kind", KINDS)
@THIRD
@given(text=TEXT, data=st.data())
def test_stop_strings_cut_exactly(kind, text, data):
    builder = builder_of(kind)
    ids = list(builder.tokens.encode_stretch(text))
    whole = builder.tokens.decode_after(ids)
    if not whole or "\ufffd" in whole:
        return
    start = data.draw(st.integers(0, len(whole) - 1))
    stop = whole[start : start + data.draw(st.integers(1, 4))]
    watch = StopWatch((stop,), builder.decoder().push)
    found = next((f for token in ids if (f := watch.feed(token)) is not None), None)
    assert found is not None
    kept, _ = streamed(builder.decoder(), ids[: found.ids], [])
    assert kept + found.text == whole[: whole.index(stop)]


def test_a_slow_tokenizer_gives_every_thread_its_own_ids():
    tokenizer = ByT5Tokenizer(extra_ids=3)
    tokenizer.chat_template = templates.CHATML.replace("<|im_end|>", "</s>")
    builder = PromptBuilder(tokenizer)
    requests = [ChatRequest((Message("user", f"{n} é</s> " * n),)) for n in range(16)]
    serial = [builder.build(request).ids for request in requests]
    results: dict[int, list[Any]] = {n: [] for n in range(16)}

    def work(number: int) -> None:
        for _ in range(10):
            results[number].append(builder.build(requests[number]).ids)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(ids == serial[n] for n, runs in results.items() for ids in runs)
    assert sum(map(len, results.values())) == 160

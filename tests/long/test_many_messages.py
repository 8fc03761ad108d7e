"""Ten thousand messages: a call pays for recognising old ones, and for nothing else of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from cachefriendly import ChatRequest, Engine, EngineConfig, Message, Sampling
from cachefriendly.prompt import PromptBuilder
from cachefriendly.prompt.overflow import ContextWindow
from cachefriendly.prompt.template import ChatTemplate
from cachefriendly.prompt.tokens import TextTokenizer
from cachefriendly.testing import byte_tokenizer, embedding_counter, templates, tiny_model

SHORT = (
    "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)
SIZES = (100, 1000, 10_000)
NEXT = Message("user", "and now?")


def history(size: int, reply: Message) -> tuple[Message, ...]:
    """``size`` old messages, then a question whose reply is recorded."""
    roles = ("user", "assistant")
    old = tuple(Message(roles[n % 2], f"{n}") for n in range(size))  # type: ignore[arg-type]
    return (*old, Message("user", "ready?"), reply)


def recorded(prompts: PromptBuilder, size: int) -> tuple[Message, ...]:
    reply = Message("assistant", "yes")
    messages = history(size, reply)
    built = prompts.build(ChatRequest(messages[:-1]))
    handle = prompts.commit(built, prompts.encode_text("yes"), reply)
    return (*messages[:-1], replace(reply, handle=handle), NEXT)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Renderings, and characters given to the tokenizer, for prompts and for lengths."""
    counts: Counter[str] = Counter()
    render, encode, count = ChatTemplate.render, TextTokenizer.encode, TextTokenizer.count

    def counted_render(self: ChatTemplate, messages: Any, **options: Any) -> str:
        counts["renders"] += 1
        counts["rendered messages"] += len(messages)
        return render(self, messages, **options)

    def counted_encode(self: TextTokenizer, text: str, **options: Any) -> list[int]:
        counts["characters"] += len(text)
        return encode(self, text, **options)

    def counted_count(self: TextTokenizer, text: str) -> int:
        counts["measured"] += 1
        return count(self, text)

    monkeypatch.setattr(ChatTemplate, "render", counted_render)
    monkeypatch.setattr(TextTokenizer, "encode", counted_encode)
    monkeypatch.setattr(TextTokenizer, "count", counted_count)
    return counts


def growth(work: Counter[str], **options: Any) -> list[Counter[str]]:
    curve = []
    for size in SIZES:
        prompts = PromptBuilder(byte_tokenizer(templates.CHATML), **options)
        messages = recorded(prompts, size)
        prompts.build(ChatRequest(messages))
        work.clear()
        prompts.build(ChatRequest((*messages[:-1], Message("user", "and then"))))
        curve.append(Counter(work))
    return curve


def test_a_call_tokenizes_what_is_new_whatever_is_old(work: Counter[str]) -> None:
    """Old messages are rendered three times in all, in one text each; none is tokenized."""
    curve = growth(work)
    assert [point["renders"] for point in curve] == [3, 3, 3]
    assert [point["rendered messages"] for point in curve] == [3 * (size + 3) for size in SIZES]
    assert len({point["characters"] for point in curve}) == 1
    assert curve[0]["characters"] < 100


def test_with_a_window_old_messages_are_not_even_rendered(work: Counter[str]) -> None:
    window = ContextWindow("drop_oldest", tokens=4000, reply_room=400)
    hundred, thousand, most = growth(work, window=window)
    assert thousand["rendered messages"] <= 4 * 4000 // 20 >= most["rendered messages"]
    assert max(point["characters"] for point in (hundred, thousand, most)) < 300
    assert {point["measured"] for point in (hundred, thousand, most)} == {1}


def test_an_engine_forwards_only_the_new_turn_behind_three_thousand_messages() -> None:
    model = tiny_model("llama", max_position_embeddings=100_000, num_hidden_layers=1)
    config = EngineConfig(max_batch_tokens=2048)
    greedy = Sampling(max_tokens=2, temperature=0)
    with Engine(model, byte_tokenizer(SHORT), config) as engine:
        old = history(3_000, Message("assistant", "yes"))[:-1]
        first = engine.chat(ChatRequest(old, sampling=greedy)).result()
        messages = (*old, first.message, NEXT)
        with embedding_counter(engine.model) as count:
            second = engine.chat(ChatRequest(messages, sampling=greedy)).result()
    assert first.report.prompt_tokens > 13_000
    assert second.report.prefilled_tokens < 16
    assert count.tokens == second.report.forwarded_tokens < 18

"""Forgetting a namespace leaves no word of it anywhere in the engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cachefriendly import ChatRequest, Engine, EngineConfig, Message, Sampling
from cachefriendly.testing import byte_tokenizer, templates, tiny_model

GREEDY = Sampling(max_tokens=4, temperature=0)


@pytest.fixture
def engine() -> Iterator[Engine]:
    tokenizer = byte_tokenizer(templates.CHATML_NO_DEFAULT_SYSTEM)
    config = EngineConfig(check_model=False)
    with Engine(tiny_model("llama"), tokenizer, config) as made:
        yield made


def ask(engine: Engine, system: str, namespace: str) -> None:
    """A conversation whose system prompt has changed: a loss that quotes both."""
    talk = [Message("user", "Hi.")]
    for text in ("Be kind.", system):
        request = ChatRequest(
            (Message("system", text), *talk), sampling=GREEDY, namespace=namespace
        )
        talk += [engine.chat(request).result().message, Message("user", "And now?")]


def test_reports_keep_their_numbers_and_lose_their_texts(engine: Engine) -> None:
    ask(engine, "The secret is 42.", "a")
    ask(engine, "Be loud.", "b")
    before = engine.reports()
    engine.forget(namespace="a")
    after = engine.reports()
    assert "secret" in repr(before)
    assert "secret" not in repr(after)
    assert after[2:] == before[2:]
    assert {report.handle for report in after[:2]} == {""}
    assert [loss.reason for loss in after[1].losses] == [loss.reason for loss in before[1].losses]


def test_what_was_prefilled_is_not_credited_to_a_later_call(engine: Engine) -> None:
    request = ChatRequest((Message("user", "Hi."),), sampling=GREEDY, namespace="a", session="s")
    engine.prefill(request).result()
    engine.forget(namespace="a")
    report = engine.chat(request).result().report
    assert (report.reused_tokens, report.background_prefilled_tokens) == (0, 0)

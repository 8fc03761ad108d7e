"""Keys that depend on the length, through the engine: every step equals a cold run of its ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from cachefriendly import (
    CacheReport,
    ChatRequest,
    ConfigError,
    Engine,
    EngineConfig,
    Message,
    MissReason,
    Sampling,
)
from cachefriendly.engine.loader import context_window_of
from cachefriendly.engine.token_engine import TokenEngine
from cachefriendly.engine.weights import WeightsWatch
from cachefriendly.rows import GenerateRequest, Maker, RowDone
from cachefriendly.testing import byte_tokenizer, recorded_logits
from cachefriendly.testing.law import LogitRecord
from tests.engine.rope_models import NAMES, SWITCH, Cold, ids_of, rope_model

TOLERANCE = 1e-5
CONTENT_ONLY = "{% for m in messages %}{{ m.content }}{% endfor %}"
OPTIONS: dict[str, dict[str, Any]] = {
    "packed": {},
    "packed, chunks of 7": {"max_batch_tokens": 7},
    "fallback": {"runner": "fallback"},
    "no reuse": {"reuse": False},
}

# Every model once on each runner; what does not depend on the model on one of each kind.
RUNS = [
    (name, options)
    for name in NAMES
    for options in OPTIONS
    if name in {"phi3 longrope", "llama dynamic"} or options in {"packed, chunks of 7", "fallback"}
]


def decoder() -> Any:
    raise AssertionError("no stop strings here")


@contextmanager
def opened(name: str, **options: Any) -> Iterator[TokenEngine]:
    config = EngineConfig(context_window=90, **options)
    tokens = TokenEngine(rope_model(name), byte_tokenizer(), decoder, config)
    try:
        yield tokens
    finally:
        tokens.close()


def request(ids: Sequence[int], max_tokens: int = 8) -> GenerateRequest:
    return GenerateRequest(tuple(ids), Sampling(max_tokens=max_tokens, temperature=0))


def check(record: LogitRecord, name: str, *, steps: int) -> None:
    """Every recorded step against a cold run of exactly its ids."""
    assert len(record.steps) >= steps
    cold = Cold(name)
    for step in record.steps:
        error = float((step.logits - cold.last(step.ids)).abs().max())
        assert error < TOLERANCE, f"{error} at {len(step.ids)} tokens"


@pytest.mark.parametrize(("name", "options"), RUNS)
def test_a_reply_that_crosses_the_switch(name: str, options: str) -> None:
    with opened(name, **OPTIONS[options]) as tokens, recorded_logits() as record:
        done = tokens.run(request(ids_of(SWITCH - 4), 9))
        assert len(done.output_ids) == 9
        assert done.regime_tokens >= SWITCH
        assert done.forwarded_tokens == SWITCH - 4 + 8 + done.regime_tokens
    check(record, name, steps=9)


@pytest.mark.parametrize(("name", "options"), RUNS)
def test_a_conversation_that_crosses_the_switch_between_two_calls(name: str, options: str) -> None:
    with opened(name, **OPTIONS[options]) as tokens, recorded_logits() as record:
        ids = tuple(ids_of(12))
        for turn in range(4):
            done = tokens.run(request(ids, 4))
            ids += done.output_ids + tuple(ids_of(7, seed=10 + turn))
        assert len(ids) > 2 * SWITCH
    check(record, name, steps=16)


@pytest.mark.parametrize(("name", "options"), RUNS)
def test_long_and_short_rows_side_by_side(name: str, options: str) -> None:
    lengths = (5, 60, SWITCH - 2, 30, 12, SWITCH + 1)
    with opened(name, **OPTIONS[options]) as tokens, recorded_logits() as record:
        channels = [tokens.submit(request(ids_of(n, seed=n), 6)).channel for n in lengths]
        for channel in channels:
            while not isinstance(channel.get(timeout=60), RowDone):
                pass
    check(record, name, steps=6 * len(lengths))


@pytest.mark.parametrize("name", ["phi3 longrope", "llama dynamic"])
def test_a_shared_prefix_is_reused_within_a_regime_only(name: str) -> None:
    long = ids_of(60)
    with opened(name) as tokens, recorded_logits() as record:
        tokens.run(request(long, 1))
        short = tokens.run(request(long[:20], 1))
        again = tokens.run(request(long[:15] + ids_of(5, seed=3), 1))
        longer = tokens.run(request(long[:50] + ids_of(20, seed=4), 1))
    assert (short.reused_tokens, again.reused_tokens) == (0, 15)
    assert longer.reused_tokens == (50 if name == "phi3 longrope" else 0)
    check(record, name, steps=4)


def test_beyond_its_trained_length_a_dynamic_model_keeps_nothing() -> None:
    with opened("llama dynamic") as tokens:
        tokens.run(request(ids_of(60), 3))
        assert tokens.stats()[1].tokens == 0


def test_forgetting_a_namespace_forgets_every_regime() -> None:
    with opened("phi3 longrope") as tokens:
        for length in (10, 60):
            tokens.run(request(ids_of(length), 1))
        assert tokens.stats()[1].tokens == 70
        tokens.ask(lambda core: core.forget(""))
        assert tokens.stats()[1].tokens == 0


def talk(engine: Engine, turns: Sequence[str], max_tokens: int = 4) -> list[CacheReport]:
    messages: list[Message] = []
    reports = []
    for text in turns:
        messages.append(Message("user", text))
        sampling = Sampling(max_tokens=max_tokens, temperature=0)
        result = engine.chat(ChatRequest(tuple(messages), sampling=sampling)).result(timeout=60)
        messages.append(result.message)
        reports.append(result.report)
    return reports


def reasons(report: CacheReport) -> dict[MissReason, int]:
    return {loss.reason: loss.tokens_lost for loss in report.losses}


def test_the_report_of_a_longrope_model_names_the_switch_once() -> None:
    with Engine(rope_model("phi3 longrope"), byte_tokenizer(CONTENT_ONLY)) as engine:
        assert engine.context_window == 96
        first, second, third = talk(engine, ["a" * 10, "b" * 20, "c" * 10])
        assert reasons(first) == {MissReason.FIRST_CALL: 0}
        assert set(reasons(second)) == {MissReason.ROPE_REGIME_CHANGED}
        assert reasons(second)[MissReason.ROPE_REGIME_CHANGED] >= 10
        assert second.reused_tokens == 0
        assert reasons(third) == {}
        assert third.reused_tokens >= 30


def test_the_report_of_a_dynamic_model_names_every_step_beyond() -> None:
    config = EngineConfig(context_window=200)
    with Engine(rope_model("llama dynamic"), byte_tokenizer(CONTENT_ONLY), config) as engine:
        _, second, third = talk(engine, ["a" * 10, "b" * 20, "c" * 10])
        for report in (second, third):
            assert set(reasons(report)) == {MissReason.ROPE_REGIME_CHANGED}
            assert report.reused_tokens == 0
        assert reasons(third)[MissReason.ROPE_REGIME_CHANGED] > 3 * third.prompt_tokens


def test_a_dynamic_model_goes_beyond_its_trained_length_when_asked() -> None:
    config = rope_model("llama dynamic").config
    assert context_window_of(config, None) == SWITCH
    assert context_window_of(config, 500) == 500


def test_a_longrope_model_goes_to_its_last_position_and_no_further() -> None:
    config = rope_model("phi3 longrope").config
    assert context_window_of(config, None) == 96
    with pytest.raises(ConfigError, match="exceeds the model's 96 positions"):
        context_window_of(config, 97)


def test_these_checks_fail_when_regimes_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cachefriendly.engine.rope.RopeRegimes.regime", lambda self, length: 0)
    with opened("phi3 longrope") as tokens, recorded_logits() as record:
        tokens.run(request(ids_of(SWITCH - 4), 9))
    with pytest.raises(AssertionError, match="tokens"):
        check(record, "phi3 longrope", steps=9)


def test_a_row_that_outgrows_older_weights_leaves_nothing_of_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it had taken over could not be dropped while it ran."""
    changed = WeightsWatch.changed
    looks = 0

    def changed_once(self: WeightsWatch) -> bool:
        nonlocal looks
        looks += 1
        return changed(self) or looks == 2

    with opened("phi3 longrope") as tokens:
        tokens.run(request(ids_of(15), 1))
        monkeypatch.setattr(WeightsWatch, "changed", changed_once)
        done = tokens.run(request(ids_of(SWITCH - 4), 9))
        spaces = tokens.ask(lambda core: core.cache.spaces())
    assert done.reused_tokens == 15
    assert done.regime_tokens >= SWITCH - 4
    assert spaces == {"1:1:"}
    assert done.maker == Maker(weights=1)

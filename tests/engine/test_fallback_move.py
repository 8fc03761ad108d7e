"""Which runner a model gets, and a live engine that moves from the packed to the fallback one."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from cachefriendly import ChatRequest, Engine, EngineConfig, Message, MissReason, Sampling
from cachefriendly.engine.runner import PackedRunner
from cachefriendly.engine.selfcheck import check_fallback, check_packed, choose_runner
from cachefriendly.engine.token_engine import TokenEngine
from cachefriendly.errors import UnsupportedModel
from cachefriendly.rows import GenerateRequest, RowDone
from cachefriendly.testing import byte_tokenizer, cold_logits, recorded_logits, tiny_model
from tests.engine.fallback_models import fallback_model, random_ids

TALK = ChatRequest((Message("user", "hi"),), sampling=Sampling(max_tokens=4, temperature=0))


def request(ids: tuple[int, ...], max_tokens: int = 12) -> GenerateRequest:
    return GenerateRequest(ids, Sampling(max_tokens=max_tokens, temperature=0))


def engine(model: Any, **options: Any) -> TokenEngine:
    return TokenEngine(model, byte_tokenizer(), lambda: None, EngineConfig(**options))  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("llama", "packed", ""),
        ("bloom", "fallback", "attention interface"),
        ("qwen3_next", "fallback", "state of another kind"),
        ("mamba2", "fallback", "state of another kind"),
    ],
)
def test_the_runner_is_chosen_by_what_the_model_computes(name: str, kind: str, why: str) -> None:
    choice = choose_runner(fallback_model(name))
    assert choice.kind == kind
    assert why in choice.reason
    assert bool(choice.reason) == (kind == "fallback")


def test_a_runner_can_be_asked_for() -> None:
    assert choose_runner(fallback_model("llama"), "fallback").kind == "fallback"
    with pytest.raises(UnsupportedModel, match="cannot use the packed runner"):
        choose_runner(fallback_model("bloom"), "packed")


def test_a_model_that_continues_one_token_at_a_time_is_found_out() -> None:
    """Mamba starts anew when several tokens follow a state."""
    assert check_fallback(fallback_model("mamba")) == 1
    assert check_fallback(fallback_model("mamba2")) is None


@pytest.mark.parametrize("runner", ["fallback", "auto"])
def test_an_unchecked_engine_is_exact_on_such_a_model_too(runner: str) -> None:
    ids, model = random_ids(30, seed=1), fallback_model("mamba")
    tokens = engine(model, runner=runner, check_model=False)
    with recorded_logits() as record:
        for length in (15, 30):
            done = tokens.run(request(ids[:length], max_tokens=4))
            record.check(fallback_model("mamba"), (*ids[:length], *done.output_ids), tol=1e-4)
    assert done.reused_tokens > 0
    tokens.close()


def test_a_model_that_neither_runner_knows_is_refused_with_both_reasons() -> None:
    with pytest.raises(UnsupportedModel, match=r"Packed: .*Fallback: "):
        choose_runner(tiny_model("bert", is_decoder=False))


def test_a_check_that_cannot_see_a_fault_is_worthless(monkeypatch: pytest.MonkeyPatch) -> None:
    """States that are shared instead of copied, and masks that lose a window."""
    from cachefriendly.kv import fallback_sequence

    with monkeypatch.context() as broken:
        broken.setattr(fallback_sequence, "forked", lambda state: state)
        for name in ("qwen3_next", "mamba2", "llama"):
            with pytest.raises(UnsupportedModel, match=r"other logits|Error"):
                check_fallback(fallback_model(name))
    small = fallback_model("mistral")
    small.set_attn_implementation("eager")
    check_packed(small)


def test_the_choice_is_visible(caplog: pytest.LogCaptureFixture) -> None:
    """In the statistics, and in one line of the log."""
    with caplog.at_level(logging.WARNING, "cachefriendly"):
        shared = Engine(fallback_model("bloom"), byte_tokenizer(), EngineConfig()).load()
    stats = shared.stats()
    assert stats.runner == "fallback"
    assert "attention interface" in stats.core.runner_reason
    assert "attention interface" in caplog.text
    assert stats.to_dict()["core"]["runner"] == "fallback"
    shared.close()


class RefusesLater:
    """Breaks the packed runner after some forwards, as an unknown attention argument would."""

    def __init__(self, after: int) -> None:
        self.left = after
        self._forward = PackedRunner.forward

    def __call__(self, runner: PackedRunner, rows: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            for row in rows:
                row.sequence.abort()
            raise UnsupportedModel("attention argument 'foo' is not known to this runner")
        return self._forward(runner, rows)


def refuse(refuses: RefusesLater) -> Any:
    """As a method."""

    def forward(self: PackedRunner, rows: Any) -> Any:
        return refuses(self, rows)

    return forward


@pytest.mark.parametrize("after", [0, 2, 7, 12])
@pytest.mark.parametrize("check", [True, False])
def test_a_live_engine_moves_and_its_rows_go_on_exactly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, after: int, check: bool
) -> None:
    """Three rows in whatever state: waiting, in the middle of a prefill, in the middle of a reply.

    Their ids are those of an engine that never moved.
    """
    model, cold = tiny_model("llama"), tiny_model("llama")
    prompts = [random_ids(n, n) for n in (40, 9, 30)]
    before = model.config._attn_implementation
    tokens = engine(model, max_batch_tokens=16, max_rows=2, check_model=check)
    refuses = RefusesLater(after)
    monkeypatch.setattr(PackedRunner, "forward", refuse(refuses))
    with caplog.at_level(logging.WARNING, "cachefriendly"), recorded_logits() as record:
        done = together(tokens, [request(ids) for ids in prompts])
        longer = prompts[0] + done[0].output_ids + random_ids(9, 2)
        next_turn = tokens.run(request(longer))
    tol = 1e-4 * float(cold_logits(cold, prompts[0]).abs().max())
    for ids, row in zip(prompts, done, strict=True):
        assert row.reused_tokens + row.prefilled_tokens == len(ids)
        record.check(cold, ids + row.output_ids, tol=tol, steps=row.sampled_tokens)
    record.check(cold, longer + next_turn.output_ids, tol=tol)
    assert next_turn.reused_tokens >= len(prompts[0])
    core, _ = tokens.stats()
    assert (core.runner, core.running) == ("fallback", 0)
    assert "attention argument 'foo'" in core.runner_reason
    assert "goes on with the fallback runner" in caplog.text
    assert model.config._attn_implementation == before  # the attention was given back
    tokens.close()


def test_keys_of_the_runner_that_was_left_are_named_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was evicted, and the call after the next loses nothing."""
    engine = Engine(tiny_model("llama"), byte_tokenizer(), EngineConfig(check_model=False))
    talk, reports = list(TALK.messages), []
    for turn in range(3):
        if turn == 1:
            monkeypatch.setattr(PackedRunner, "forward", refuse(RefusesLater(0)))
        result = engine.chat(ChatRequest(tuple(talk), sampling=TALK.sampling)).result()
        talk += [result.message, Message("user", "and?")]
        reports.append(result.report)
    _, second, third = reports
    (loss,) = second.losses
    assert loss.reason is MissReason.COMPUTED_ELSEWHERE
    assert loss.tokens_lost == reports[0].prompt_tokens + reports[0].generated_tokens - 1
    assert "packed runner" in loss.fix
    assert third.losses == ()
    engine.close()


def test_an_engine_that_was_told_to_stay_ends_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = engine(tiny_model("llama"), runner="packed")
    refuses = RefusesLater(0)
    monkeypatch.setattr(PackedRunner, "forward", refuse(refuses))
    with pytest.raises(UnsupportedModel, match="argument 'foo'"):
        tokens.run(request(random_ids(10, 1)))
    assert tokens.stats()[0].runner == "packed"
    tokens.close()


def test_unchecked_models_move_at_their_first_step() -> None:
    model = fallback_model("qwen3_next")
    tokens = engine(model, check_model=False)
    prompt = random_ids(30, 1)
    with recorded_logits() as record:
        done = tokens.run(request(prompt))
    cold = fallback_model("qwen3_next")
    tol = 1e-4 * float(cold_logits(cold, prompt).abs().max())
    record.check(cold, prompt + done.output_ids, tol=tol)
    assert tokens.stats()[0].runner == "fallback"
    tokens.close()


def test_training_mode_is_no_reason_to_move() -> None:
    model = tiny_model("llama")
    tokens = engine(model)
    model.train()
    with pytest.raises(UnsupportedModel, match=r"model\.eval\(\)"):
        tokens.run(request(random_ids(10, 1)))
    model.eval()
    tokens.run(request(random_ids(10, 1)))
    assert tokens.stats()[0].runner == "packed"
    tokens.close()


@pytest.mark.parametrize("name", ["qwen3_next", "mamba2", "bloom"])
def test_the_owner_keeps_a_usable_model(name: str) -> None:
    """Before, while and after an engine runs it; also in another thread at the same time."""
    model = fallback_model(name)
    ids = torch.tensor([random_ids(12, 4)])

    def owner() -> list[int]:
        out: list[int] = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False
        ).tolist()
        return out

    before = owner()
    tokens = engine(model)
    running = tokens.submit(request(random_ids(20, 1), 60))
    assert owner() == before
    while not isinstance(running.channel.get(), RowDone):
        pass
    assert owner() == before
    tokens.close()
    assert owner() == before
    assert not model.training


def test_a_model_in_training_mode_is_given_back_in_it() -> None:
    model = fallback_model("qwen3_next").train()
    tokens = engine(model)
    tokens.run(request(random_ids(10, 1)))
    assert not model.training
    tokens.close()
    assert model.training


def together(tokens: TokenEngine, requests: list[GenerateRequest]) -> list[RowDone]:
    gate = threading.Barrier(len(requests))

    def run(asked: GenerateRequest) -> RowDone:
        gate.wait()
        return tokens.run(asked)

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(run, requests))

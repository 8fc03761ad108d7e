"""The law on the fallback runner: every logit of every trace equals a cold run's."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cachefriendly.config import EngineConfig, Sampling
from cachefriendly.engine.channel import Submitted
from cachefriendly.engine.token_engine import TokenEngine
from cachefriendly.errors import RowFailed
from cachefriendly.rows import GenerateRequest, RowDone
from cachefriendly.testing import byte_tokenizer, cold_logits, embedding_counter, recorded_logits
from tests.engine.fallback_models import fallback_model, layers_of, random_ids
from tests.engine.talks import Talks

NAMES = [
    "qwen3_next",
    "qwen3_5_text",
    "nemotron_h",
    "falcon_h1",
    "mamba2",
    "mamba",
    "rwkv",
    "bloom",
    "llama",
    "mistral",
]
RECURRENT = ["qwen3_next", "nemotron_h", "falcon_h1", "mamba2", "rwkv"]
EVERYWHERE = ["bloom", "llama"]  # full attention alone can be cut back to any length


@functools.cache
def cold(name: str) -> Any:
    """A copy that no engine has touched."""
    return fallback_model(name)


@functools.cache
def tolerance(name: str) -> float:
    return 1e-4 * float(cold_logits(cold(name), range(30)).abs().max())


def decoder() -> Any:
    raise AssertionError("no stop strings here")


def engine(name: str, **options: Any) -> TokenEngine:
    config = EngineConfig(**{"runner": "fallback", "max_batch_tokens": 16, **options})
    return TokenEngine(fallback_model(name), byte_tokenizer(), decoder, config)


def request(
    ids: tuple[int, ...], max_tokens: int = 8, at: tuple[int, ...] = (), **sampling: Any
) -> GenerateRequest:
    options = {"temperature": 0, **sampling}
    return GenerateRequest(ids, Sampling(max_tokens=max_tokens, **options), snapshots_at=at)


def run(tokens: TokenEngine, ids: tuple[int, ...], *args: Any, **kwargs: Any) -> RowDone:
    return tokens.run(request(ids, *args, **kwargs))


def wait(submitted: Submitted) -> RowDone:
    while not isinstance(event := submitted.channel.get(), RowDone):
        pass
    return event


@pytest.mark.parametrize("name", NAMES)
def test_a_conversation_is_continued_forked_and_cut(name: str) -> None:
    """A prompt in chunks, its continuation, a branch at a named place, and the prompt again."""
    tokens = engine(name)
    run(tokens, (1, 2, 3), 1)  # RWKV divides its weights in its first forward
    assert tokens.stats()[0].runner == "fallback"
    prompt = random_ids(70, 1)
    with recorded_logits() as record, embedding_counter(tokens.ask(lambda c: c.runner.model)) as n:
        first = run(tokens, prompt, at=(50, 66))
        second = prompt + first.output_ids + random_ids(9, 2)
        reports = [first, run(tokens, second)]
        branch = prompt[:66] + random_ids(20, 3)
        reports.append(run(tokens, branch))
        again = run(tokens, prompt)
        reports.append(again)
    assert n.tokens == sum(done.forwarded_tokens for done in reports)
    assert reports[1].reused_tokens >= len(prompt) + len(first.output_ids) - 1
    assert reports[2].reused_tokens == 66
    assert again.reused_tokens == (69 if name in EVERYWHERE else 66)
    for ids, done in ((prompt, first), (second, reports[1]), (branch, reports[2]), (prompt, again)):
        record.check(cold(name), ids + done.output_ids, tol=tolerance(name))
    tokens.close()


@pytest.mark.parametrize("name", ["mamba2", "qwen3_next", "llama"])
def test_one_corrupted_state_is_seen(name: str) -> None:
    """A check that cannot see a fault is worthless."""
    tokens = engine(name)
    first = run(tokens, random_ids(70, 1))
    tokens.ask(corrupt)
    with recorded_logits() as record:
        longer = random_ids(70, 1) + first.output_ids + random_ids(9, 2)
        second = run(tokens, longer)
    assert second.reused_tokens >= 70
    with pytest.raises(AssertionError, match="logits differ"):
        record.check(cold(name), longer + second.output_ids, tol=tolerance(name))
    tokens.close()


def corrupt(core: Any) -> None:
    """Zero one kept token of full attention; without one, one channel of a kept state."""
    for node in next(iter(core.cache._trees.values())).nodes():
        for tensor in node.value.parts.values():
            tensor[:, :, 5:6] = 0
        if not node.value.parts:
            node.value.snapshot.bare.layers[0].recurrent_states[0][:, 0] = 0


class Trace(Talks):
    """A few calls at a time that continue, branch, repeat, fail half way and are left early."""

    def next_prompt(self) -> tuple[int, ...]:
        if not self.talks or self.random.random() < 0.3:
            return self.ids(60)
        talk = self.random.choice(self.talks)
        kind = self.random.random()
        if kind < 0.2:
            return talk
        keep = len(talk) if kind < 0.7 else self.random.randint(1, len(talk))
        return talk[:keep] + self.ids(20)

    def next_request(self) -> GenerateRequest:
        prompt = self.next_prompt()
        count = self.random.randint(0, 2)
        at = sorted(self.random.randint(1, len(prompt)) for _ in range(count))
        return request(prompt, self.random.randint(1, 10), tuple(at))

    def step(self, model: Any) -> None:
        """Start one to three calls at once; now and then a layer raises in one forward."""
        running = []
        fault = self.random.random() < 0.2
        handle = raise_once(model) if fault else None
        for _ in range(self.random.randint(1, 3)):
            asked = self.next_request()
            running.append((asked.prompt_ids, self.tokens.submit(asked)))
        for prompt, submitted in running:
            event = submitted.channel.get()
            if self.random.random() < 0.2:
                submitted.cancel()
                self.talks.append(prompt)
                continue
            while not isinstance(event, RowDone):
                event = submitted.channel.get()
            assert event.reused_tokens + event.prefilled_tokens == len(prompt)
            self.talks.append(prompt + event.output_ids)
        if handle is not None:
            handle.remove()


def raise_once(model: Any, *, layer: int = 1) -> Any:
    """A hook that fails one forward after the first layer has stored its tokens."""
    left = [1]

    def hook(*args: Any) -> None:
        if left:
            left.pop()
            raise ValueError("boom")

    return layers_of(model)[layer].register_forward_pre_hook(hook)


def check_trace(name: str, seed: int, steps: int, **options: Any) -> None:
    tokens = engine(name, check_model=False, **options)
    model = tokens.ask(lambda core: core.runner.model)
    with recorded_logits() as record:
        trace = Trace(tokens, seed)
        for _ in range(steps):
            trace.step(model)
    for talk in trace.talks:
        record.check(cold(name), talk, tol=tolerance(name))
    tokens.clear()
    assert tokens.stats()[1].bytes == 0
    tokens.close()


@pytest.mark.parametrize("name", ["qwen3_next", "falcon_h1", "bloom", "mistral"])
@settings(max_examples=3, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    budget=st.sampled_from([30_000, 300_000, 1 << 30]),
    batch=st.sampled_from([3, 16, 256]),
)
def test_traces_equal_cold_runs(name: str, seed: int, budget: int, batch: int) -> None:
    check_trace(name, seed, 6, kv_bytes=budget, max_batch_tokens=batch)


@pytest.mark.long
@pytest.mark.parametrize("name", [n for n in NAMES if n != "mamba"])
@pytest.mark.parametrize("seed", range(40))
def test_long_traces_equal_cold_runs(name: str, seed: int) -> None:
    check_trace(name, seed, 25, kv_bytes=300_000)


@pytest.mark.parametrize("name", RECURRENT)
def test_a_forward_that_raises_half_way_leaves_nothing_behind(name: str) -> None:
    tokens = engine(name)
    model = tokens.ask(lambda core: core.runner.model)
    prompt = random_ids(40, 1)
    first = run(tokens, prompt)
    longer = prompt + first.output_ids + random_ids(9, 2)
    handle = raise_once(model)
    with recorded_logits() as record:
        second = run(tokens, longer)
    handle.remove()
    record.check(cold(name), longer + second.output_ids, tol=tolerance(name))
    assert second.forwarded_tokens == len(longer) - second.reused_tokens + second.sampled_tokens - 1
    tokens.close()


def test_a_row_that_fails_alone_ends_alone() -> None:
    """The other row of the step, and the next call on the same conversation, are exact."""
    tokens = engine("qwen3_next")
    model = tokens.ask(lambda core: core.runner.model)
    prompt, poison = random_ids(40, 1), 251

    def hook(module: Any, args: Any, kwargs: Any) -> None:
        ids = args[0] if args else kwargs["input"]
        if poison in ids.flatten().tolist():
            raise ValueError("boom")

    handle = model.get_input_embeddings().register_forward_pre_hook(hook, with_kwargs=True)
    other = tuple(i for i in random_ids(40, 5) if i != poison)
    with recorded_logits() as record:
        bad = tokens.submit(request((*prompt[:30], poison, *prompt[30:]), at=(20,)))
        good = tokens.run(request(other))
        with pytest.raises(RowFailed, match="boom"):
            wait(bad)
        handle.remove()
        after = run(tokens, prompt)
    record.check(cold("qwen3_next"), other + good.output_ids, tol=tolerance("qwen3_next"))
    record.check(cold("qwen3_next"), prompt + after.output_ids, tol=tolerance("qwen3_next"))
    assert after.reused_tokens >= 16  # what the failed row had forwarded was certain
    tokens.close()


def test_case_18_calls_of_unequal_length_at_once() -> None:
    tokens = engine("qwen3_next")
    prompts = [random_ids(n, n) for n in (3, 61, 17, 30)]
    with recorded_logits() as record:
        running = [tokens.submit(request(ids)) for ids in prompts]
        done = [wait(one) for one in running]
    for ids, row in zip(prompts, done, strict=True):
        record.check(cold("qwen3_next"), ids + row.output_ids, tol=tolerance("qwen3_next"), steps=8)
    tokens.close()


def test_calls_that_begin_alike_compute_the_beginning_once() -> None:
    """The second waits for the state that the first was asked to keep, no longer."""
    tokens = engine("qwen3_next")
    shared = random_ids(100, 1)
    prompts = [shared + random_ids(30, n) for n in (2, 3, 4)]
    with recorded_logits() as record, embedding_counter(tokens.ask(lambda c: c.runner.model)) as n:
        running = [tokens.submit(request(ids, 4, at=(100,))) for ids in prompts]
        done = [wait(one) for one in running]
    assert [row.reused_tokens for row in done] == [0, 100, 100]
    assert n.tokens == sum(row.forwarded_tokens for row in done) == 100 + 3 * 33
    for ids, row in zip(prompts, done, strict=True):
        record.check(cold("qwen3_next"), ids + row.output_ids, tol=tolerance("qwen3_next"))
    tokens.close()


@pytest.mark.parametrize("name", ["mistral", "qwen3_next", "falcon_h1"])
def test_case_16_and_20_going_back_is_exact_or_computed(name: str) -> None:
    """Windows and recurrent states that moved on do not go back; every cut is tried."""
    tokens = engine(name)
    prompt = random_ids(40, 1)
    first = prompt + run(tokens, prompt, at=(20,)).output_ids
    with recorded_logits() as record:
        for keep in (1, 7, 19, 20, 21, 33, 39, 40, 43, 47):
            branch = first[:keep] + random_ids(5, keep)
            done = run(tokens, branch, 2)
            assert done.reused_tokens <= keep
            assert done.common_tokens >= keep
            record.check(cold(name), branch + done.output_ids, tol=tolerance(name))
    tokens.close()


def test_weights_changed_under_a_running_row_poison_nothing() -> None:
    tokens = engine("qwen3_next")
    model, changed = tokens.ask(lambda core: core.runner.model), fallback_model("qwen3_next")
    prompt = random_ids(40, 1)
    running = tokens.submit(request(prompt, 100))
    running.channel.get()
    for owner in (model, changed):
        with torch.no_grad():
            owner.get_input_embeddings().weight.mul_(1.5)
    run(tokens, random_ids(10, 2))
    wait(running)
    with recorded_logits() as record:
        longer = prompt + random_ids(3, 3)
        again = run(tokens, longer)
    assert again.reused_tokens == 0
    record.check(changed, longer + again.output_ids, tol=tolerance("qwen3_next") * 2)
    tokens.close()


@pytest.mark.parametrize("name", ["qwen3_next", "mamba2"])
def test_a_seed_gives_the_same_ids_cold_and_warm(name: str) -> None:
    tokens = engine(name)
    asked = [request(random_ids(40, 1), 10, temperature=1.0, seed=seed) for seed in (1, 2)]
    alone = [tokens.run(one).output_ids for one in asked]
    tokens.clear()
    submitted = [tokens.submit(one) for one in asked]
    assert [wait(one).output_ids for one in submitted] == alone
    assert alone[0] != alone[1]
    tokens.close()


def test_changed_weights_are_never_served_old_states() -> None:
    """CASES 19."""
    tokens = engine("qwen3_next")
    model = tokens.ask(lambda core: core.runner.model)
    ids = random_ids(40, 1)
    first = ids + run(tokens, ids).output_ids
    changed = fallback_model("qwen3_next")
    for owner in (model, changed):
        with torch.no_grad():
            owner.get_input_embeddings().weight.mul_(1.5)
    with recorded_logits() as record:
        again = run(tokens, first)
    assert again.reused_tokens == 0
    record.check(changed, first + again.output_ids, tol=tolerance("qwen3_next") * 2)
    tokens.close()

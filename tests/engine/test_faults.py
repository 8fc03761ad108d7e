"""What goes wrong stays with whom it happened to, and the next call is exact."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from cachefriendly import (
    Cancelled,
    ChatRequest,
    Engine,
    EngineClosed,
    EngineConfig,
    Message,
    RowFailed,
    Sampling,
)
from cachefriendly.engine.core import Core
from cachefriendly.engine.sampler import Sampler
from cachefriendly.testing import byte_tokenizer, cold_generate, tiny_model

GREEDY = Sampling(max_tokens=12, temperature=0)


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(tiny_model("llama"), byte_tokenizer()) as made:
        yield made


def request_of(text: str, sampling: Sampling = GREEDY, namespace: str = "") -> ChatRequest:
    return ChatRequest((Message("user", text),), sampling=sampling, namespace=namespace)


COLD = tiny_model("llama")  # building one sets the global seed: not something for threads


def exact(result: Any) -> bool:
    expected = cold_generate(COLD, result.prompt_ids, max_new_tokens=12)
    return list(result.output_ids) == expected[: len(result.output_ids)]


def test_a_forward_that_raises_half_way_leaves_nothing_behind(engine: Engine) -> None:
    first = engine.chat(request_of("one")).result()
    layer = engine.model.get_submodule("model.layers.1")
    hook = layer.register_forward_pre_hook(explode)
    with pytest.raises(RowFailed, match="boom"):
        engine.chat(request_of("one two three")).result()
    hook.remove()
    again = engine.chat(request_of("one two three")).result()
    assert exact(first)
    assert exact(again)


def explode(module: Any, args: Any) -> None:
    raise RuntimeError("boom")


def test_out_of_memory_evicts_and_tries_less_at_once(engine: Engine) -> None:
    """Halved until it fits, here below 20 tokens; kept tokens go first."""
    kept = engine.chat(request_of("kept " * 20)).result()
    sizes: list[int] = []

    def too_much(module: Any, args: Any) -> None:
        sizes.append(args[0].shape[1])
        if sizes[-1] > 20:
            raise torch.OutOfMemoryError("out of memory: tried to allocate 1 GiB")

    hook = engine.model.get_submodule("model.layers.0").register_forward_pre_hook(too_much)
    result = engine.chat(request_of("a long enough prompt to be halved twice")).result()
    hook.remove()
    assert exact(result)
    assert sizes[0] == sizes[1] > sizes[2] > 20 >= sizes[3]
    again = engine.chat(request_of("kept " * 20)).result()
    assert again.output_ids == kept.output_ids
    assert again.report.reused_tokens < len(kept.prompt_ids) - 1


def test_a_rows_own_failure_ends_that_row_only(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Sampler.choose

    def choose(self: Sampler, logits: Any, allowed: Any = None) -> int:
        poisoned = self._ids[0, 0] == 256 and self._generator.initial_seed() == 13
        return original(
            self, torch.full_like(logits, float("nan")) if poisoned else logits, allowed
        )

    monkeypatch.setattr(Sampler, "choose", choose)
    good = engine.chat(request_of("good"))
    bad = engine.chat(request_of("bad", Sampling(max_tokens=12, temperature=0, seed=13)))
    with pytest.raises(RowFailed, match="no token can be chosen"):
        bad.result()
    assert exact(good.result())


def test_closing_ends_running_calls_and_refuses_new_ones() -> None:
    engine = Engine(tiny_model("llama"), byte_tokenizer())
    call = engine.chat(request_of("long", Sampling(max_tokens=1500, temperature=0)))
    engine.close()
    engine.close()
    with pytest.raises(EngineClosed, match="closed"):
        call.result()
    with pytest.raises(EngineClosed, match="create a new Engine"):
        engine.chat(request_of("again"))


def test_a_forked_child_is_told(engine: Engine) -> None:
    engine.chat(request_of("parent")).result()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            engine.chat(request_of("child"))
            message = "no error"
        except EngineClosed as error:
            message = str(error)
        os.write(write, message.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert "before the fork" in os.read(read, 4096).decode()
    assert exact(engine.chat(request_of("parent still works")).result())


def test_dropping_a_call_cancels_it(engine: Engine) -> None:
    call = engine.chat(request_of("long", Sampling(max_tokens=1500, temperature=0)))
    del call
    gc.collect()
    deadline = time.monotonic() + 20
    while engine.stats().core.running + engine.stats().core.waiting and time.monotonic() < deadline:
        time.sleep(0.01)
    assert engine.stats().core.running == 0


def test_timeout_cancels(engine: Engine) -> None:
    call = engine.chat(request_of("long", Sampling(max_tokens=1500, temperature=0)))
    with pytest.raises(TimeoutError, match=r"no complete reply within timeout=0\.01 s; raise"):
        call.result(timeout=0.01)
    with pytest.raises(TimeoutError):
        call.result()
    timed = engine.chat(request_of("x", Sampling(max_tokens=1500, temperature=0)), timeout=0.02)
    with pytest.raises(TimeoutError, match=r"timeout=0\.02 s"):
        list(timed)


async def test_a_deadline_holds_in_async_code_too(engine: Engine) -> None:
    long = request_of("long", Sampling(max_tokens=1500, temperature=0))
    with pytest.raises(TimeoutError, match=r"timeout=0\.02 s"):
        await engine.chat(long, timeout=0.02).aresult()


def test_cancelling_from_another_thread_reaches_the_consumer(engine: Engine) -> None:
    call = engine.chat(request_of("long", Sampling(max_tokens=1500, temperature=0)))
    threading.Timer(0.02, call.cancel).start()
    with pytest.raises(Cancelled):
        for _ in call:
            pass
    with pytest.raises(Cancelled):
        call.result()


def test_an_event_loop_that_went_away_cancels(engine: Engine) -> None:
    async def leave() -> None:
        task = asyncio.ensure_future(
            engine.chat(request_of("x", Sampling(max_tokens=1500, temperature=0))).aresult()
        )
        await asyncio.sleep(0.01)
        assert not task.done()

    asyncio.run(leave())
    deadline = time.monotonic() + 20
    while engine.stats().core.running and time.monotonic() < deadline:
        time.sleep(0.01)
    assert engine.stats().core.running == 0
    assert exact(engine.chat(request_of("still exact")).result())


def test_copies_share_the_engine_and_pickles_are_refused(engine: Engine) -> None:
    assert copy.deepcopy(engine) is engine
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(engine)


def test_switch_interval_is_lowered_in_a_step_and_restored(engine: Engine) -> None:
    before = sys.getswitchinterval()
    seen: list[float] = []
    layer = engine.model.get_submodule("model.layers.0")
    hook = layer.register_forward_pre_hook(
        lambda module, args: seen.append(sys.getswitchinterval())
    )
    with Engine(tiny_model("llama"), byte_tokenizer()) as other:
        calls = [e.chat(request_of("hello")) for e in (engine, other) for _ in range(4)]
        for call in calls:
            call.result()
        other.stats()
    engine.stats()
    hook.remove()
    assert max(seen) < 0.001
    assert sys.getswitchinterval() == before


def test_a_dead_engine_thread_gives_the_model_back() -> None:
    model = tiny_model("llama")
    implementation = model.config._attn_implementation
    engine = Engine(model, byte_tokenizer())

    def die(core: Core) -> None:
        raise SystemError("a bug of ours")

    call = engine.chat(request_of("long", Sampling(max_tokens=1500, temperature=0)))
    engine.token_engine._worker.post(die)
    with pytest.raises(EngineClosed, match="the engine thread died: SystemError"):
        call.result()
    engine.close()
    assert model.config._attn_implementation == implementation
    with Engine(model, byte_tokenizer()) as again:
        assert exact(again.chat(request_of("alive")).result())


def test_closing_lets_the_weights_go(tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    engine = Engine.from_pretrained(str(tmp_path), device_map={"": "cpu"})
    weights = weakref.ref(engine.model.get_input_embeddings().weight)
    engine.chat(request_of("hello")).result()
    engine.close()
    gc.collect()
    assert weights() is None
    assert "closed" in repr(engine)


def test_case_23_live_bytes_are_unique_tokens_and_slack(engine: Engine) -> None:
    """Results that stay alive pin nothing; clear() returns to the baseline."""
    talk, results = [Message("user", "start")], []
    for turn in range(12):
        result = engine.chat(ChatRequest(tuple(talk), sampling=GREEDY)).result()
        results.append(result)
        talk += [result.message, Message("user", f"turn {turn}")]
    stats = engine.stats().cache
    config = engine.model.config
    per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 4
    longest = len(results[-1].prompt_ids) + len(results[-1].output_ids)
    assert stats.tokens <= longest
    assert stats.bytes <= (stats.tokens + 1024) * per_token
    engine.clear()
    assert engine.stats().cache.bytes == 0
    assert len(results) == 12


def test_the_byte_budget_holds_under_many_conversations() -> None:
    budget = 400_000
    config = EngineConfig(kv_bytes=budget)
    with Engine(tiny_model("llama"), byte_tokenizer(), config) as engine:
        for number in range(40):
            result = engine.chat(request_of(f"conversation {number} " * 8)).result()
            assert engine.stats().cache.bytes <= budget
        assert exact(result)
        assert engine.stats().cache.evictions > 0


def test_namespaces_share_nothing(engine: Engine) -> None:
    engine.chat(request_of("secret", namespace="a")).result()
    other = engine.chat(request_of("secret", namespace="b")).result()
    assert other.report.reused_tokens == 0
    engine.forget(namespace="b")
    again = engine.chat(request_of("secret", namespace="b")).result()
    assert again.report.reused_tokens == 0
    assert engine.chat(request_of("secret", namespace="a")).result().report.reused_tokens > 0


def test_many_threads_at_once(engine: Engine) -> None:
    """Every thread's replies equal cold runs, and nothing is left running."""
    failures: list[str] = []

    def talk(number: int) -> None:
        messages = [Message("user", f"thread {number}")]
        for _ in range(4):
            result = engine.chat(ChatRequest(tuple(messages), sampling=GREEDY)).result()
            if not exact(result):
                failures.append(f"thread {number}")
            messages += [result.message, Message("user", "more")]

    threads = [threading.Thread(target=talk, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert engine.stats().core.running == 0


def test_held_bytes_return_to_zero_when_closed() -> None:
    engine = Engine(tiny_model("llama"), byte_tokenizer())
    engine.chat(request_of("hello")).result()
    cores: list[Core] = []
    engine.token_engine.ask(cores.append)
    engine.close()
    assert cores[0].cache.ledger.bytes == 0
    assert cores[0].cache.ledger.extents == 0


@pytest.mark.parametrize("runner", ["packed", "fallback"])
@pytest.mark.parametrize("error", [MemoryError, ValueError])
def test_what_cannot_be_kept_is_a_miss_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, runner: Any, error: type[Exception]
) -> None:
    """Its tokens are not forwarded a second time, and nobody waits for ever."""
    with Engine(tiny_model("llama"), byte_tokenizer(), EngineConfig(runner=runner)) as engine:
        store = type(engine.token_engine.ask(lambda core: core.cache))
        with monkeypatch.context() as broken:
            broken.setattr(store, "keep", raising(error("no")))
            calls = [engine.chat(request_of(text)) for text in ("one", "two")]
            assert all(exact(call.result(timeout=20)) for call in calls)
        assert engine.stats().cache.bytes == 0
        assert exact(engine.chat(request_of("one")).result(timeout=20))


def raising(error: Exception) -> Any:
    """A method that raises."""

    def method(*_: Any) -> None:
        raise error

    return method

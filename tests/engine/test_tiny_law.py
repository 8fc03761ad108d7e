"""The law on tiny random models, where one corrupted cached token must be seen."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cachefriendly.config import EngineConfig, Sampling
from cachefriendly.engine.core import Core
from cachefriendly.engine.token_engine import TokenEngine
from cachefriendly.errors import ConfigError, UnsupportedModel
from cachefriendly.rows import GenerateRequest, RowDone
from cachefriendly.testing import byte_tokenizer, cold_logits, recorded_logits, tiny_model

ARCHITECTURES = [
    "llama",
    "qwen2",
    "qwen3",
    "mistral",
    "gemma2",
    "gemma3",
    "gpt2",
    "phi3",
    "gpt_oss",
]
RELATIVE_TOL = 1e-4


def decoder() -> Any:
    raise AssertionError("no stop strings here")


def run(tokens: TokenEngine, ids: tuple[int, ...], max_tokens: int = 8) -> tuple[int, ...]:
    done = tokens.run(GenerateRequest(ids, Sampling(max_tokens=max_tokens, temperature=0)))
    return ids + done.output_ids


def random_ids(n: int, seed: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(0, 256, (n,), generator=generator).tolist())


def scale_of(model: Any) -> float:
    """Size of the logits, which tolerances are relative to."""
    return float(cold_logits(model, random_ids(30, 9)).abs().max())


def conversation(tokens: TokenEngine) -> list[tuple[int, ...]]:
    """Continue, crop and fork behind one prompt; every window of 8 is left far behind."""
    first = run(tokens, random_ids(70, 1))
    second = run(tokens, first + random_ids(9, 2))
    cropped = run(tokens, first[:50] + random_ids(20, 3))
    return [second, cropped, run(tokens, second[:90] + random_ids(5, 4))]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures_are_exact(name: str) -> None:
    cold, model = tiny_model(name), tiny_model(name)
    cold.set_attn_implementation("eager")  # sdpa of transformers before 5.24 ignores softcaps
    scale = scale_of(cold)
    config = EngineConfig(max_batch_tokens=16)
    with recorded_logits() as record:
        tokens = TokenEngine(model, byte_tokenizer(), decoder, config)
        for ids in conversation(tokens):
            record.check(cold, ids, tol=RELATIVE_TOL * scale)
        tokens.close()


def test_one_corrupted_cached_token_is_seen() -> None:
    """A check that cannot see a fault is worthless."""
    cold = tiny_model("llama")
    scale = scale_of(cold)
    tokens = TokenEngine(tiny_model("llama"), byte_tokenizer(), decoder, EngineConfig())
    first = run(tokens, random_ids(70, 1))
    tokens.ask(corrupt_one_token)
    with recorded_logits() as record:
        second = run(tokens, first + random_ids(9, 2))
    with pytest.raises(AssertionError, match="logits differ"):
        record.check(cold, second, tol=RELATIVE_TOL * scale)
    tokens.close()


def corrupt_one_token(core: Core) -> None:
    node = next(iter(core.cache._trees["0:0:"].nodes()))
    piece = node.value.pieces[0]
    key, value = piece.extent.read(0, piece.start + 5, piece.start + 6)
    key.zero_()
    value.zero_()


def test_a_model_in_training_mode_is_refused() -> None:
    model = tiny_model("llama")
    tokens = TokenEngine(model, byte_tokenizer(), decoder, EngineConfig())
    model.train()
    with pytest.raises(UnsupportedModel, match=r"model\.eval\(\)"):
        run(tokens, random_ids(10, 1))
    tokens.close()


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt_oss"])
def test_the_owner_keeps_a_usable_model(name: str) -> None:
    """Padded batches included; before, while and after an engine holds the model."""
    model = tiny_model(name)
    ids = torch.tensor([[0, 0, 0, 5, 6, 7], [1, 2, 3, 4, 5, 6]])
    mask = torch.tensor([[0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1]])

    def owner() -> torch.Tensor:
        return model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False)

    before = owner()
    implementation = model.config._attn_implementation
    tokens = TokenEngine(model, byte_tokenizer(), decoder, EngineConfig())
    run(tokens, random_ids(20, 1))
    assert torch.equal(owner(), before)
    run(tokens, random_ids(20, 1))
    tokens.close()
    assert torch.equal(owner(), before)
    assert model.config._attn_implementation == implementation


def test_one_model_has_one_engine() -> None:
    model = tiny_model("llama")
    tokens = TokenEngine(model, byte_tokenizer(), decoder, EngineConfig())
    with pytest.raises(ConfigError, match=r"another open Engine runs this model; share"):
        TokenEngine(model, byte_tokenizer(), decoder, EngineConfig())
    tokens.close()
    TokenEngine(model, byte_tokenizer(), decoder, EngineConfig()).close()


def test_changed_weights_are_never_served_old_keys() -> None:
    model, cold = tiny_model("llama"), tiny_model("llama")
    tokens = TokenEngine(model, byte_tokenizer(), decoder, EngineConfig())
    first = run(tokens, random_ids(40, 1))
    for owner in (model, cold):
        with torch.no_grad():
            owner.get_input_embeddings().weight.mul_(1.5)
    with recorded_logits() as record:
        again = run(tokens, first)
    record.check(cold, again, tol=RELATIVE_TOL * scale_of(cold))
    tokens.close()


def test_weights_changed_under_a_running_row_poison_nothing() -> None:
    """The row goes on like a plain generate; what it forwarded is found by nobody."""
    model, cold = tiny_model("llama"), tiny_model("llama")
    tokens = TokenEngine(model, byte_tokenizer(), decoder, EngineConfig())
    prompt = random_ids(40, 1)
    running = tokens.submit(GenerateRequest(prompt, Sampling(max_tokens=400, temperature=0)))
    running.channel.get()
    for owner in (model, cold):
        with torch.no_grad():
            owner.get_input_embeddings().weight.mul_(1.5)
    run(tokens, random_ids(10, 2))  # admitted after the change
    while not isinstance(running.channel.get(), RowDone):
        pass
    with recorded_logits() as record:
        again = run(tokens, prompt + random_ids(3, 3))
    record.check(cold, again, tol=RELATIVE_TOL * scale_of(cold))
    tokens.close()


def test_closing_frees_every_buffer() -> None:
    tokens = TokenEngine(tiny_model("llama"), byte_tokenizer(), decoder, EngineConfig())
    conversation(tokens)
    assert tokens.stats()[1].bytes > 0
    tokens.clear()
    assert tokens.stats()[1].bytes == 0
    assert tokens.stats()[1].extents == 0
    tokens.close()

"""The test doubles themselves: a double that sees no fault proves nothing."""

from __future__ import annotations

import pytest
import torch

from cachefriendly.testing import (
    ARCHITECTURES,
    byte_tokenizer,
    cold_generate,
    cold_logits,
    embedding_counter,
    tiny_model,
)

IDS = [ord(char) for char in "the quick brown fox jumps"]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_tiny_models_are_small_real_and_seeded(name):
    model = tiny_model(name)
    assert model.dtype is torch.float32
    assert not model.training
    assert sum(p.numel() for p in model.parameters()) < 400_000
    logits = cold_logits(model, IDS)
    assert logits.shape == (len(IDS), 320)
    assert torch.equal(logits, cold_logits(tiny_model(name), IDS))
    assert not torch.allclose(logits, cold_logits(tiny_model(name, seed=1), IDS))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_one_changed_token_is_seen_at_the_end(name):
    model = tiny_model(name)
    # Inside the window of 8: beyond it a windowed layer may not look, by its own definition.
    changed = [*IDS[:-4], (IDS[-4] + 1) % 256, *IDS[-3:]]
    difference = (cold_logits(model, IDS)[-1] - cold_logits(model, changed)[-1]).abs().max()
    assert difference > 1e-2 * cold_logits(model, IDS)[-1].abs().max()


@pytest.mark.parametrize("name", ["mistral", "gemma2", "gemma3", "gpt_oss"])
def test_windows_are_eight_tokens(name):
    layers = getattr(tiny_model(name).config, "layer_types", None)
    assert tiny_model(name).config.sliding_window == 8
    if layers is not None:
        assert set(layers) == {"sliding_attention", "full_attention"}


def test_a_window_of_eight_is_really_applied():
    model = tiny_model("mistral", num_hidden_layers=1)
    changed = [IDS[0] + 1, *IDS[1:]]
    near, far = (cold_logits(model, IDS) - cold_logits(model, changed)).abs().amax(-1)[[7, 8]]
    assert near > 1e-3
    assert far == 0


def test_other_architectures_and_overrides_go_through():
    assert tiny_model("olmo2").config.model_type == "olmo2"
    assert tiny_model(num_hidden_layers=3).config.num_hidden_layers == 3


def test_the_callers_random_state_is_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    tiny_model()
    assert torch.equal(torch.rand(3), expected)


def test_cold_generate_is_the_argmax_of_cold_logits():
    model = tiny_model()
    ids = list(IDS)
    for token in cold_generate(model, IDS, max_new_tokens=6, eos_token_id=None):
        assert token == int(cold_logits(model, ids)[-1].argmax())
        ids.append(token)
    assert len(ids) == len(IDS) + 6


def test_counter_sees_each_forward_and_stops_with_the_block():
    model = tiny_model()
    with embedding_counter(model) as count:
        cold_logits(model, IDS)
        cold_logits(model, IDS[:3])
        assert count.ids == [tuple(IDS), tuple(IDS[:3])]
        assert (count.tokens, count.forwards) == (len(IDS) + 3, 2)
        count.reset()
    cold_logits(model, IDS)
    assert count.forwards == 0


def test_counter_counts_what_generate_feeds_back():
    with embedding_counter(model := tiny_model()) as count:
        new = cold_generate(model, IDS, max_new_tokens=5, eos_token_id=None)
    # The last token is sampled but never fed back.
    assert count.tokens == len(IDS) + len(new) - 1


def test_vocabulary_of_tokenizer_and_models_agree():
    tokenizer = byte_tokenizer()
    config = tiny_model().config
    assert len(tokenizer) <= config.vocab_size
    assert config.eos_token_id == tokenizer.eos_token_id
    assert config.bos_token_id == tokenizer.bos_token_id

"""Small copies: every layer kind is there, what the owner holds stays as it was."""

from __future__ import annotations

import copy
import time

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaForCausalLM

from cachefriendly.engine.shrink import shrunken_copy
from cachefriendly.errors import UnsupportedModel
from cachefriendly.testing import tiny_model


def small(model_type: str, **fields):
    config = AutoConfig.for_model(model_type, **fields)
    return shrunken_copy(config, AutoModelForCausalLM._model_mapping[type(config)])


def test_model_config_and_random_state_stay_as_they_were():
    model = tiny_model("gemma2", num_hidden_layers=2)
    before, state = copy.deepcopy(model.config.to_dict()), torch.get_rng_state()
    implementation = model.config._attn_implementation
    copied = shrunken_copy(model)
    assert model.config.to_dict() == before
    assert torch.equal(torch.get_rng_state(), state)
    assert copied.config is not model.config
    assert model.config._attn_implementation == implementation


def test_a_large_model_is_small_within_about_a_second():
    config = AutoConfig.for_model(
        "llama",
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
        vocab_size=128256,
    )
    start = time.perf_counter()
    copied = shrunken_copy(config, LlamaForCausalLM)
    assert time.perf_counter() - start < 3  # a busy machine
    assert sum(p.numel() for p in copied.parameters()) < 10_000_000
    assert copied.config.num_attention_heads > copied.config.num_key_value_heads > 1


def test_two_copies_have_the_same_weights_and_another_seed_has_others():
    model = tiny_model("llama")
    first, second = shrunken_copy(model), shrunken_copy(model)
    other = shrunken_copy(model, seed=1)
    name = "lm_head.weight"
    assert torch.equal(first.state_dict()[name], second.state_dict()[name])
    assert not torch.equal(first.state_dict()[name], other.state_dict()[name])


@pytest.mark.parametrize(
    ("model_type", "kinds"),
    [
        ("gemma3_text", {"sliding_attention", "full_attention"}),
        ("llama4_text", {"chunked_attention", "full_attention"}),
        ("qwen3_next", {"linear_attention", "full_attention"}),
        ("nemotron_h", {"linear_attention", "moe", "full_attention", "mlp"}),
        ("jamba", {"linear_attention", "full_attention"}),
        ("zamba2", {"linear_attention", "hybrid"}),
    ],
)
def test_every_layer_kind_is_kept(model_type, kinds):
    config = small(model_type).config
    layers = getattr(config, "layers_block_type", None) or config.layer_types
    said = {"linear_attention" if kind == "mamba" else kind for kind in layers}
    said = {"full_attention" if kind == "attention" else kind for kind in said}
    assert said == kinds


def test_layers_that_share_keys_keep_one_of_each_type_to_share_with():
    config = small("gemma3n_text").config
    own = config.layer_types[: -config.num_kv_shared_layers]
    shared = config.layer_types[-config.num_kv_shared_layers :]
    assert set(shared) == set(own) == {"sliding_attention", "full_attention"}


def test_fields_that_differ_per_layer_move_with_their_layers():
    config = small("gemma4_text").config
    widths = [layer.head_dim for layer in config.per_layer_config]
    expected = {"sliding_attention": 256, "full_attention": 512}
    assert widths == [expected[kind] for kind in config.layer_types]


def test_dense_and_sparse_layers_are_both_there():
    names = {type(layer.mlp).__name__ for layer in small("deepseek_v3").model.layers}
    assert names == {"DeepseekV3MLP", "DeepseekV3MoE"}


@pytest.mark.parametrize("model_type", ["gemma2", "phimoe", "gpt_oss", "mistral", "cohere2"])
def test_windows_are_eight_tokens(model_type):
    assert small(model_type, sliding_window=1024).config.sliding_window == 8


def test_chunks_are_eight_tokens():
    assert small("llama4_text").config.attention_chunk_size == 8


class Stubborn(LlamaForCausalLM):
    def __init__(self, config):
        raise ValueError("head_dim must be 128")


def test_what_cannot_be_copied_is_refused_with_a_reason():
    reason = r"no small copy of Stubborn to check could be made: .*head_dim must be 128"
    with pytest.raises(UnsupportedModel, match=reason):
        shrunken_copy(AutoConfig.for_model("llama"), Stubborn)


def test_a_configuration_without_a_number_of_layers_is_refused_in_words():
    with pytest.raises(UnsupportedModel, match="does not say how many layers"):
        small("blt")

"""Whatever a model computes with belongs to its weights; looking never harms an engine."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from cachefriendly.config import EngineConfig, Sampling
from cachefriendly.engine.token_engine import TokenEngine
from cachefriendly.engine.weights import LOOKS, WeightsWatch
from cachefriendly.rows import GenerateRequest
from cachefriendly.testing import byte_tokenizer, cold_logits, recorded_logits, tiny_model
from tests.engine.fallback_models import RECIPES, random_ids

MOE = {
    "layers_block_type": ["mamba", "moe", "attention"],
    "num_hidden_layers": 3,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
    "n_group": 1,
    "topk_group": 1,
}


def router_model() -> Any:
    """Its router's bias is a buffer of the checkpoint, no parameter."""
    return tiny_model("nemotron_h", **{**RECIPES["nemotron_h"], **MOE})


def engine(model: Any) -> TokenEngine:
    config = EngineConfig(check_model=False, runner="fallback")
    return TokenEngine(model, byte_tokenizer(), lambda: None, config)  # type: ignore[arg-type, return-value]


def request(ids: tuple[int, ...]) -> GenerateRequest:
    return GenerateRequest(ids, Sampling(max_tokens=4, temperature=0))


def test_a_changed_buffer_of_the_checkpoint_is_seen() -> None:
    model, changed = router_model(), router_model()
    tokens = engine(model)
    first = random_ids(40, 1) + tokens.run(request(random_ids(40, 1))).output_ids
    for owner in (model, changed):
        bias = owner.get_buffer("model.layers.1.mixer.gate.e_score_correction_bias")
        bias.copy_(torch.tensor([3.0, -2.0, 1.0, 0.0]))
    with recorded_logits() as record:
        again = tokens.run(request(first))
    assert again.reused_tokens == 0
    scale = float(cold_logits(changed, first).abs().max())
    record.check(changed, first + again.output_ids, tol=1e-4 * scale)
    tokens.close()


def test_what_a_model_computes_for_itself_is_no_change() -> None:
    """Rotary frequencies of another length, for one: no checkpoint has them."""
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    model = tiny_model("llama", rope_parameters=rope, max_position_embeddings=24)
    watch = WeightsWatch(model)
    cold_logits(model, range(40))
    assert not watch.changed_at_all()


class Torn:
    """A method that fails some times, as it does while another thread changes what it walks."""

    def __init__(self, method: Any, times: int) -> None:
        self.left = times
        self._method = method

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return functools.partial(self, owner)

    def __call__(self, owner: Any, *args: Any, **kwargs: Any) -> Any:
        if self.left:
            self.left -= 1
            raise RuntimeError("dictionary changed size during iteration")
        return self._method(owner, *args, **kwargs)


def test_a_look_that_was_disturbed_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    tokens = engine(model)
    ids = random_ids(40, 1) + tokens.run(request(random_ids(40, 1))).output_ids
    torn = Torn(type(model).parameters, LOOKS - 1)
    monkeypatch.setattr(type(model), "parameters", torn)
    assert tokens.run(request(ids)).reused_tokens >= 39
    assert torn.left == 0
    tokens.close()


def test_what_could_not_be_looked_at_counts_as_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    tokens = engine(model)
    ids = random_ids(40, 1) + tokens.run(request(random_ids(40, 1))).output_ids
    monkeypatch.setattr(type(model), "parameters", Torn(type(model).parameters, LOOKS))
    # Nobody knows what was there, nor what it is compared with at the next look.
    assert [tokens.run(request(ids)).reused_tokens >= 39 for _ in range(3)] == [False, False, True]
    tokens.close()


class Adapter(torch.nn.Module):
    """As far as it is looked at, a layer of peft's."""

    disable_adapters = False
    merged_adapters: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.active_adapters = ["first"]
        self.torn = 0

    @property
    def scaling(self) -> dict[str, float]:
        if self.torn:
            self.torn -= 1
            raise RuntimeError("dictionary changed size during iteration")
        return {"first": 1.0}


@pytest.mark.parametrize("times", [1, LOOKS, 100])
def test_adapters_that_are_loaded_while_a_reply_is_generated_end_no_call(times: int) -> None:
    """The look before every step meets them half way."""
    model = tiny_model("llama")
    model.adapter = Adapter()
    tokens = engine(model)
    model.adapter.torn = times
    assert tokens.run(request(random_ids(40, 1))).sampled_tokens == 4
    model.adapter.torn = 0
    model.adapter.active_adapters = ["second"]
    assert tokens.run(request(random_ids(40, 1))).reused_tokens == 0
    tokens.close()


@pytest.mark.parametrize("runner", ["packed", "fallback"])
def test_frozen_parts_of_a_model_in_training_stay_frozen(runner: Any) -> None:
    model = tiny_model("llama")
    model.train()
    model.model.layers[0].eval()
    config = EngineConfig(check_model=False, runner=runner)
    tokens = TokenEngine(model, byte_tokenizer(), lambda: None, config)  # type: ignore[arg-type, return-value]
    assert not model.model.layers[1].training
    tokens.run(request(random_ids(10, 1)))
    tokens.close()
    assert model.training
    assert model.model.layers[1].training
    assert not model.model.layers[0].training
    assert not model.model.layers[0].mlp.training


def test_an_attention_that_its_owner_chose_meanwhile_stays() -> None:
    model = tiny_model("llama")
    config = EngineConfig(check_model=False)
    tokens = TokenEngine(model, byte_tokenizer(), lambda: None, config)  # type: ignore[arg-type, return-value]
    model.set_attn_implementation("eager")
    assert tokens.run(request(random_ids(10, 1))).sampled_tokens == 4
    assert tokens.stats()[0].runner == "fallback"
    tokens.close()
    assert model.config._attn_implementation == "eager"

"""Quantized weights through transformers' own loading: checked, exact, and left to their owner."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from cachefriendly import EngineConfig, Sampling
from cachefriendly.engine.coupling import rows_influence_each_other
from cachefriendly.engine.selfcheck import choose_runner
from cachefriendly.engine.token_engine import TokenEngine
from cachefriendly.engine.weights import WeightsWatch
from cachefriendly.rows import GenerateRequest
from cachefriendly.testing import byte_tokenizer, cold_generate, recorded_logits, tiny_model

pytestmark = pytest.mark.filterwarnings("ignore")  # the packages' own deprecations at import
TOLERANCE = 1e-4  # of logits of the order of one


def quanto() -> Any:
    from transformers import QuantoConfig

    return QuantoConfig(weights="int8")


def torchao() -> Any:
    from torchao.quantization import Int8WeightOnlyConfig
    from transformers import TorchAoConfig

    return TorchAoConfig(Int8WeightOnlyConfig())


KINDS: dict[str, Callable[[], Any]] = {"optimum.quanto": quanto, "torchao": torchao}


def installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture(scope="module", params=KINDS)
def quantized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tiny llama, saved and loaded with int8 weights."""
    if not installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    folder: Path = tmp_path_factory.mktemp("llama")
    tiny_model("llama").save_pretrained(folder)
    config = KINDS[request.param]()
    model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=config)
    return model.eval()


def decoder() -> Any:
    raise AssertionError("no stop strings here")


def test_the_weights_are_really_quantized(quantized: Any) -> None:
    weight = quantized.model.layers[0].mlp.up_proj.weight
    assert type(weight) is not torch.nn.Parameter


def test_the_self_check_runs_on_a_plain_copy(quantized: Any) -> None:
    assert choose_runner(quantized).kind == "packed"
    assert rows_influence_each_other(quantized) is None


def test_warm_equals_cold_and_the_owner_notices_nothing(quantized: Any) -> None:
    ids = tuple(range(20, 50))
    before = cold_generate(quantized, ids, max_new_tokens=8)
    tokens = TokenEngine(quantized, byte_tokenizer(), decoder, EngineConfig(max_batch_tokens=16))
    try:
        with recorded_logits() as record:
            sampling = Sampling(max_tokens=8, temperature=0)
            first = tokens.run(GenerateRequest(ids, sampling))
            longer = ids + first.output_ids + (3, 4, 5)
            second = tokens.run(GenerateRequest(longer, sampling))
        assert second.reused_tokens >= len(ids) + 6
        assert cold_generate(quantized, ids, max_new_tokens=8) == before
    finally:
        tokens.close()
    report = record.check(quantized, longer + second.output_ids, tol=TOLERANCE, steps=15)
    assert report.largest_difference < TOLERANCE
    assert cold_generate(quantized, ids, max_new_tokens=8) == before


def test_a_forward_changes_no_weights_and_a_write_does(quantized: Any) -> None:
    watch = WeightsWatch(quantized)
    quantized(torch.tensor([[1, 2, 3]]))
    assert not watch.changed()
    assert not watch.changed_at_all()
    with torch.no_grad():
        quantized.model.norm.weight.mul_(1.0)
    assert watch.changed()

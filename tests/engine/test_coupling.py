"""Layers that scale activations by the loudest token of a forward: shown, found, and kept apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cachefriendly import EngineConfig, Sampling
from cachefriendly.engine.coupling import rows_influence_each_other
from cachefriendly.engine.runner import PackedRunner, RowInput
from cachefriendly.engine.token_engine import TokenEngine
from cachefriendly.kv.extent import Ledger
from cachefriendly.kv.sequence import Sequence
from cachefriendly.rows import GenerateRequest, RowDone
from cachefriendly.testing import byte_tokenizer, cold_generate, tiny_model

ROWS = (list(range(40, 60)), list(range(100, 103)), list(range(7, 40)))


class Int8Linear(nn.Module):
    """Dynamic int8 activations: one scale for a whole tensor, or one per token."""

    def __init__(self, linear: nn.Linear, *, per_token: bool) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self._per_token = per_token

    def forward(self, x: Tensor) -> Tensor:
        peak = x.abs().amax(-1, keepdim=True) if self._per_token else x.abs().max()
        scale = peak.clamp(min=1e-9) / 127
        return nn.functional.linear((x / scale).round() * scale, self.weight, self.bias)


def quantized(*, per_token: bool) -> Any:
    model = tiny_model("llama")
    for layer in model.model.layers:
        for name in ("gate_proj", "up_proj", "down_proj"):
            setattr(layer.mlp, name, Int8Linear(getattr(layer.mlp, name), per_token=per_token))
    return model


def decoder() -> Any:
    raise AssertionError("no stop strings here")


def test_rows_packed_together_differ_from_single_ones() -> None:
    runner = PackedRunner(quantized(per_token=False))
    together = runner.forward([RowInput(Sequence(Ledger()), ids) for ids in ROWS])
    alone = [runner.forward([RowInput(Sequence(Ledger()), ids)])[0] for ids in ROWS]
    runner.close()
    assert max(float((a - b).abs().max()) for a, b in zip(together, alone, strict=True)) > 1e-2


def test_the_probe_finds_a_shared_scale_and_nothing_else() -> None:
    reason = rows_influence_each_other(quantized(per_token=False))
    assert reason is not None
    assert "mlp.gate_proj (Int8Linear)" in reason
    assert rows_influence_each_other(quantized(per_token=True)) is None
    for name in ("llama", "gpt2", "gpt_oss"):
        assert rows_influence_each_other(tiny_model(name)) is None


@pytest.mark.parametrize("budget", [1024, 4])
def test_the_engine_gives_what_the_model_gives_alone(budget: int) -> None:
    """Also on a second, longer call: a past that is not forwarded would change the scale."""
    model = quantized(per_token=False)
    config = EngineConfig(max_batch_tokens=budget)
    tokens = TokenEngine(quantized(per_token=False), byte_tokenizer(), decoder, config)
    try:
        for rows in (ROWS, [[*ids, 9, 8, 7] for ids in ROWS]):
            requests = [
                GenerateRequest(tuple(ids), Sampling(max_tokens=6, temperature=0)) for ids in rows
            ]
            channels = [tokens.submit(request).channel for request in requests]
            for ids, channel in zip(rows, channels, strict=True):
                while not isinstance(done := channel.get(timeout=60), RowDone):
                    pass
                expected = cold_generate(model, ids, max_new_tokens=6)
                assert list(done.output_ids) == expected[: len(done.output_ids)]
                assert len(done.output_ids) >= 5
                assert (done.reused_tokens, done.coupled) == (0, True)
    finally:
        tokens.close()


def test_the_owner_is_not_disturbed_by_the_probe() -> None:
    model = quantized(per_token=False)
    ids = torch.tensor([ROWS[0]])
    before = model(ids).logits
    rows_influence_each_other(model)
    assert torch.equal(model(ids).logits, before)

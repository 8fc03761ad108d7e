"""Keys that depend on the length of the sequence: one regime per forward, nothing left behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from cachefriendly.engine.rope import RopeRegimes
from cachefriendly.engine.runner import PackedRunner, RowInput
from cachefriendly.kv.extent import Ledger
from cachefriendly.kv.sequence import Sequence
from cachefriendly.testing import tiny_model
from tests.engine.rope_models import NAMES, SWITCH, Cold, ids_of, rope_model

TOLERANCE = 1e-5  # logits are of the order of one
BELOW, BEYOND = (5, 17, SWITCH), (SWITCH + 1, 40)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def runner(name: str) -> Iterator[PackedRunner]:
    packed = PackedRunner(rope_model(name))
    yield packed
    packed.close()


def logits_of(runner: PackedRunner, ids: list[int], chunk: int = 1000) -> torch.Tensor:
    """Logits behind ``ids``, forwarded in chunks as one row of that whole length."""
    sequence = Sequence(Ledger())
    for start in range(0, len(ids), chunk):
        part = ids[start : start + chunk]
        logits = runner.forward([RowInput(sequence, part, True, len(ids))])
    return logits[0]


def difference(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got - want).abs().max())


@pytest.mark.parametrize("chunk", [1000, 7])
@pytest.mark.parametrize("length", BELOW + BEYOND)
def test_a_row_equals_the_cold_run_whole_and_in_chunks(
    runner: PackedRunner, name: str, length: int, chunk: int
) -> None:
    ids = ids_of(length)
    assert difference(logits_of(runner, ids, chunk), Cold(name).last(ids)) < TOLERANCE


def test_a_longer_prompt_leaves_nothing_behind(runner: PackedRunner, name: str) -> None:
    for length in (60, 30, SWITCH, 50, 5):
        ids = ids_of(length, seed=length)
        assert difference(logits_of(runner, ids), Cold(name).last(ids)) < TOLERANCE


def test_rows_of_one_regime_share_a_forward(runner: PackedRunner, name: str) -> None:
    rows = [ids_of(length, seed=length) for length in BELOW]
    inputs = [RowInput(Sequence(Ledger()), ids) for ids in rows]
    for ids, logits in zip(rows, runner.forward(inputs), strict=True):
        assert difference(logits, Cold(name).last(ids)) < TOLERANCE


def test_rows_of_two_regimes_are_refused(runner: PackedRunner) -> None:
    short, long = Sequence(Ledger()), Sequence(Ledger())
    with pytest.raises(ValueError, match="different rope regimes"):
        runner.forward([RowInput(short, ids_of(5)), RowInput(long, ids_of(40))])
    assert short.length == long.length == 0


def test_the_switch_matters_for_these_models(name: str) -> None:
    """Otherwise the tests above compare nothing: a continuation over the switch must differ."""
    ids = ids_of(40)
    runner = PackedRunner(rope_model(name))
    sequence = Sequence(Ledger())
    runner.forward([RowInput(sequence, ids[:SWITCH])])
    logits = runner.forward([RowInput(sequence, ids[SWITCH:])])[0]
    assert difference(logits, Cold(name).last(ids)) > 100 * TOLERANCE


def test_the_owner_gets_the_same_before_during_and_after(name: str) -> None:
    """Also what the owner's own longer prompt left in the module stays the owner's."""
    owned, untouched = rope_model(name), rope_model(name)
    first, second = (torch.tensor([ids_of(n, seed=n)]) for n in (50, 40))
    try:
        before = [model(first, use_cache=False).logits for model in (owned, untouched)]
        untouched(first, use_cache=False)
    except UnboundLocalError as error:  # longrope by layer type in transformers 5.17
        pytest.skip(f"this transformers runs such a model once: {error}")
    runner = PackedRunner(owned)
    logits_of(runner, ids_of(70))
    during = [model(second, use_cache=False).logits for model in (owned, untouched)]
    logits_of(runner, ids_of(5))
    runner.close()
    after = [model(second, use_cache=False).logits for model in (owned, untouched)]
    for mine, theirs in (before, during, after):
        assert torch.equal(mine, theirs)
    assert not any("forward" in vars(module) for module in owned.modules())


def test_a_rotary_module_that_was_replaced_is_noticed(name: str) -> None:
    model = rope_model(name)
    runner = PackedRunner(model)
    for module in model.modules():
        vars(module).pop("forward", None)
    with pytest.raises(Exception, match="rotary modules were replaced"):
        logits_of(runner, ids_of(40))


def test_regimes_of_longrope() -> None:
    regimes = RopeRegimes.of(rope_model("phi3 longrope"))
    assert [regimes.regime(n) for n in (1, SWITCH, SWITCH + 1, 90)] == [0, 0, 1, 1]
    assert regimes.reusable(90)
    assert not regimes.one


def test_regimes_of_dynamic_ntk() -> None:
    regimes = RopeRegimes.of(rope_model("llama dynamic"))
    assert [regimes.regime(n) for n in (1, SWITCH, SWITCH + 1, 90)] == [0, 0, SWITCH + 1, 90]
    assert regimes.reusable(SWITCH)
    assert not regimes.reusable(SWITCH + 1)


@pytest.mark.parametrize("kind", ["llama3", "yarn", "linear", "default"])
def test_ropes_that_do_not_look_at_the_length_have_one_regime(kind: str) -> None:
    options: dict[str, Any] = {
        "rope_type": kind,
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": SWITCH,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }
    model = tiny_model("llama", rope_parameters=options)
    assert RopeRegimes.of(model).one
    assert RopeRegimes.of(model).regime(10**6) == 0


def test_a_type_named_dynamic_that_is_static_has_one_regime() -> None:
    model = tiny_model(
        "hunyuan_v1_dense",
        rope_parameters={
            "rope_type": "dynamic",
            "rope_theta": 10000.0,
            "alpha": 1000.0,
            "factor": 1.0,
        },
    )
    if model.model.rotary_emb.rope_type == "dynamic":
        pytest.skip("this transformers does recompute its frequencies by length")
    assert RopeRegimes.of(model).one

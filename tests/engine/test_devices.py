"""Models that accelerate offloaded or spread: keys by layer, and nothing for owners to notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import cpu_offload, disk_offload, dispatch_model

from cachefriendly import ChatRequest, Engine, EngineConfig, Message, Sampling
from cachefriendly.engine.devices import input_device, spread_over_devices
from cachefriendly.engine.loader import model_fingerprint
from cachefriendly.engine.runner import PackedRunner, RowInput
from cachefriendly.engine.token_engine import TokenEngine
from cachefriendly.engine.weights import WeightsWatch
from cachefriendly.kv.extent import Ledger
from cachefriendly.kv.sequence import Sequence
from cachefriendly.rows import GenerateRequest
from cachefriendly.testing import byte_tokenizer, recorded_logits, tiny_model

CPU = torch.device("cpu")
TOLERANCE = 1e-4
ARCHITECTURES = ("llama", "gemma3", "gpt_oss")
PARTS = ("model.embed_tokens", "model.layers.0", "model.rotary_emb", "model.layers.1")


def mixed_map(second: str) -> dict[str, str]:
    places = dict.fromkeys(PARTS[:3], "cpu") | {PARTS[3]: second, "model.norm": "cpu"}
    return places | {"lm_head": second}


def on_cpu(model: Any, folder: Path) -> Any:
    return cpu_offload(model, execution_device=CPU)


def on_disk(model: Any, folder: Path) -> Any:
    return disk_offload(model, str(folder), execution_device=CPU)


def half_on_disk(model: Any, folder: Path) -> Any:
    return dispatch_model(model, mixed_map("disk"), main_device="cpu", offload_dir=str(folder))


Offload = Callable[[Any, Path], Any]
OFFLOADS: tuple[Offload, ...] = (on_cpu, on_disk, half_on_disk)


@pytest.fixture(params=OFFLOADS, ids=lambda offload: str(offload.__name__))
def offload(request: pytest.FixtureRequest) -> Offload:
    made: Offload = request.param
    return made


def decoder() -> Any:
    raise AssertionError("no stop strings here")


def reply(model: Any, ids: tuple[int, ...]) -> list[int]:
    """The owner's own greedy ``generate``; ids on the CPU, where offloaded models run here."""
    batch = torch.tensor([ids])
    out = model.generate(
        batch, attention_mask=torch.ones_like(batch), do_sample=False, max_new_tokens=6
    )
    new_ids: list[int] = out[0, len(ids) :].tolist()
    return new_ids


# transformers 5.17 takes the device of the first parameter, which is on "meta", for the model's.
@pytest.mark.filterwarnings("ignore:You are calling .generate")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_offloaded_model_is_exact_and_stays_its_owners(
    name: str, offload: Offload, tmp_path: Path
) -> None:
    ids, sampling = tuple(range(30, 60)), Sampling(max_tokens=6, temperature=0)
    cold, model = tiny_model(name), offload(tiny_model(name), tmp_path)
    expected = reply(cold, ids)
    owners = [reply(model, ids)]
    tokens = TokenEngine(model, byte_tokenizer(), decoder, EngineConfig(max_batch_tokens=16))
    try:
        with recorded_logits() as record:
            first = tokens.run(GenerateRequest(ids, sampling))
            owners.append(reply(model, ids))
            longer = ids + first.output_ids + (1, 2, 3)
            second = tokens.run(GenerateRequest(longer, sampling))
    finally:
        tokens.close()
    owners.append(reply(model, ids))
    assert second.reused_tokens >= len(ids) + 4, "offloading must not look like new weights"
    record.check(cold, longer + second.output_ids, tol=TOLERANCE, steps=len(first.output_ids))
    assert owners == [expected] * 3


def test_ids_go_where_the_first_layer_runs(offload: Offload, tmp_path: Path) -> None:
    model = offload(tiny_model("llama"), tmp_path)
    assert input_device(model) == CPU
    assert not spread_over_devices(model)


def test_offloading_changes_neither_fingerprint_nor_watched_weights(
    offload: Offload, tmp_path: Path
) -> None:
    model = offload(tiny_model("llama"), tmp_path)
    watch = WeightsWatch(model)
    model(torch.tensor([[1, 2, 3]]))
    assert not watch.changed()
    assert not watch.changed_at_all()
    assert model_fingerprint(model) == model_fingerprint(tiny_model("llama"))


def test_a_write_to_offloaded_weights_is_noticed(tmp_path: Path) -> None:
    model = on_cpu(tiny_model("llama"), tmp_path)
    watch = WeightsWatch(model)
    weights = model.lm_head._hf_hook.weights_map
    with torch.no_grad():
        weights["weight"].mul_(2.0)
    assert watch.changed()


def test_an_engine_loads_with_a_device_map(tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    request = ChatRequest(
        (Message("user", "hello"),), sampling=Sampling(max_tokens=6, temperature=0)
    )
    replies = []
    for places in (None, "cpu", mixed_map("cpu")):
        with Engine.from_pretrained(str(tmp_path), device_map=places) as engine:
            replies.append(engine.chat(request).result(timeout=60).output_ids)
    assert replies[0]
    assert replies == [replies[0]] * 3


def test_keys_lie_on_the_device_of_their_layer() -> None:
    """Two devices, simulated: the second is torch's meta device, which has shapes and no values.

    What is computed on two real accelerators is not shown by this.
    """
    places = mixed_map("meta") | {"model.norm": "meta"}
    model = dispatch_model(tiny_model("llama"), places, main_device="cpu")
    model._hf_hook.io_same_device = False  # values cannot come back from there
    assert spread_over_devices(model)
    assert input_device(model) == CPU
    runner = PackedRunner(model)
    one, two = Sequence(Ledger()), Sequence(Ledger())
    runner.forward([RowInput(one, list(range(10))), RowInput(two, list(range(5)))])
    logits = runner.forward([RowInput(one, [3]), RowInput(two, list(range(4)))])
    assert logits.shape == (2, 320)
    for piece in (*one.pieces, *two.pieces):
        devices = [piece.extent.read(slot, 0, 1)[0].device.type for slot in piece.extent.slots()]
        assert devices == ["cpu", "meta"]
    runner.close()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_index_of_wanted_rows_fits_every_device(name: str) -> None:
    """On several devices it is a list of numbers; the logits must be those of the tensor."""
    rows = [list(range(20)), list(range(50, 57))]
    results = []
    for spread in (False, True):
        runner = PackedRunner(tiny_model(name))
        runner._spread = spread
        results.append(runner.forward([RowInput(Sequence(Ledger()), ids) for ids in rows]))
        runner.close()
    assert torch.equal(*results)

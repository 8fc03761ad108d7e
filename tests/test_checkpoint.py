"""From an adapter's arguments to an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cachefriendly.checkpoint import Checkpoint, check_engine
from cachefriendly.config import EngineConfig
from cachefriendly.errors import ConfigError
from cachefriendly.testing import byte_tokenizer, templates, tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("checkpoint")
    tiny_model("llama").save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return str(path)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"device_map": {"": "cpu"}},
        {"model_kwargs": {"dtype": "float32"}},
        {"model_kwargs": {"torch_dtype": torch.float32, "revision": None}},
        {"model_kwargs": {"dtype": torch.float32, "low_cpu_mem_usage": True}},
        {"tokenizer_kwargs": {"padding_side": "left"}},
        {"tokenizer": byte_tokenizer()},
    ],
)
def test_loading_arguments(folder: str, options: dict[str, Any]) -> None:
    with Checkpoint(model=folder, config=EngineConfig(max_rows=1), **options).open() as engine:
        assert engine.model.dtype == torch.float32
        assert engine.config.max_rows == 1
        assert engine.token_ids("a") == [97]


def test_names_alone_load_nothing_and_share_the_engine(folder: str) -> None:
    engine = Checkpoint(model=folder, tokenizer=folder).open()
    assert "not loaded" in repr(engine)
    assert Checkpoint(model=folder, model_kwargs={"dtype": "auto"}).open() is engine
    assert engine.context_window == 2048
    assert "not loaded" in repr(engine)


def test_a_loaded_tokenizer_is_used_as_it_is(folder: str) -> None:
    """It may have been changed since it was loaded, so its name says too little."""
    tokenizer = byte_tokenizer(templates.NATIVE_TOOLS)
    tokenizer.name_or_path = folder
    with Checkpoint(model=folder, tokenizer=tokenizer).open() as engine:
        assert engine.tokenizer is tokenizer


def test_a_loaded_model_needs_a_tokenizer_or_a_name(folder: str) -> None:
    model, tokenizer = tiny_model("llama"), byte_tokenizer()
    assert Checkpoint(model=model, tokenizer=tokenizer).open().model is model
    assert Checkpoint(model=model, tokenizer=folder).open().token_ids("a") == [97]
    with pytest.raises(ConfigError, match="give tokenizer="):
        Checkpoint(model=model).open()


def test_what_acts_like_an_engine_is_one() -> None:
    class Double:
        def chat(self, request: Any) -> Any: ...

    double: Any = Double()
    assert check_engine(double) is double
    with pytest.raises(ConfigError, match="engine=int is no cachefriendly Engine"):
        check_engine(3)


def test_a_path_to_nothing_asks_no_hub() -> None:
    for options in ({}, {"model_kwargs": {"trust_remote_code": True}}):
        with pytest.raises(ConfigError, match="there is nothing at '/no/where'"):
            Checkpoint(model="/no/where", **options).open()


def test_a_path_to_no_model_says_what_is_missing(folder: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing at .* give a tokenizer's folder"):
        Checkpoint(model=folder, tokenizer="./nope").open()
    (tmp_path / "model.gguf").touch()
    with pytest.raises(ConfigError, match="is a file; give its folder, and gguf_file="):
        Checkpoint(model=str(tmp_path / "model.gguf")).open()
    with pytest.raises(ConfigError, match=r"there is no config.json in"):
        _ = Checkpoint(model=str(tmp_path)).open().model
    with pytest.raises(ConfigError, match=r"there is no config.json in"):
        _ = Checkpoint(model=str(tmp_path)).open().context_window


def test_a_config_is_no_dictionary(folder: str) -> None:
    config: Any = {"kv_bytes": 1}
    with pytest.raises(ConfigError, match="engine_config=dict is no EngineConfig"):
        Checkpoint(model=folder, config=config).open()


def test_what_an_engine_has_is_not_changed_beside_it(folder: str) -> None:
    engine = Checkpoint(model=folder, config=EngineConfig(max_rows=2)).open()
    assert check_engine(engine, EngineConfig(max_rows=2)) is engine
    with pytest.raises(ConfigError, match="engine_config= cannot change an engine"):
        check_engine(engine, EngineConfig(max_rows=3))
    with pytest.raises(ConfigError, match="engine_config=dict is no EngineConfig"):
        check_engine(engine, {"max_rows": 2})
    with engine:
        assert check_engine(engine, tokenizer=engine.tokenizer) is engine
        with pytest.raises(ConfigError, match="tokenizer= cannot change an engine"):
            check_engine(engine, tokenizer=byte_tokenizer())

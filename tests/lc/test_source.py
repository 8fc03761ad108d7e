"""Where a chat model's engine comes from."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cachefriendly.config import EngineConfig
from cachefriendly.errors import ConfigError
from cachefriendly.testing import byte_tokenizer, templates, tiny_model
from cachefriendly_lc import ChatCacheFriendly
from cachefriendly_lc.source import engine_from


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("checkpoint")
    tiny_model("llama").save_pretrained(path)
    byte_tokenizer().save_pretrained(path)
    return str(path)


def test_a_tokenizer_with_another_template_is_the_one_that_is_used(checkpoint: str) -> None:
    tokenizer = byte_tokenizer(templates.NATIVE_TOOLS)
    tokenizer.name_or_path = checkpoint
    with engine_from({"model": checkpoint, "tokenizer": tokenizer}) as engine:
        assert engine.tokenizer is tokenizer
        assert engine.tokenizer.chat_template == templates.NATIVE_TOOLS


def test_a_tokenizers_name_loads_nothing(checkpoint: str) -> None:
    for options in ({"tokenizer": checkpoint}, {"model_kwargs": {"tokenizer": checkpoint}}):
        engine = engine_from({"model": checkpoint, **options})
        assert "not loaded" in repr(engine)
        assert engine is engine_from({"model": checkpoint})


def test_load_options_reach_the_loader(checkpoint: str) -> None:
    load = {"device_map": {"": "cpu"}, "dtype": "bfloat16", "use_safetensors": True, "top_k": 3}
    with engine_from({"model": checkpoint, "model_kwargs": load}) as engine:
        assert engine.model.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"engine_config": EngineConfig(max_rows=3)}, "engine_config= cannot change an engine"),
        ({"engine_config": {"max_rows": 3}}, "engine_config=dict is no EngineConfig"),
        ({"tokenizer": byte_tokenizer()}, "tokenizer= cannot change an engine"),
    ],
)
def test_what_would_be_ignored_beside_an_engine_is_refused(
    checkpoint: str, options: dict[str, Any], said: str
) -> None:
    with engine_from({"model": checkpoint}) as engine, pytest.raises(ConfigError, match=said):
        ChatCacheFriendly(engine=engine, **options)


def test_a_pipeline_without_its_tokenizer() -> None:
    class Pipeline:
        model, tokenizer = tiny_model("llama"), None

    class Llm:
        pipeline = Pipeline()

    llm: Any = Llm()
    with pytest.raises(ConfigError, match="give tokenizer="):
        engine_from({"llm": llm})
    tokenizer = byte_tokenizer()
    with engine_from({"llm": llm, "tokenizer": tokenizer}) as engine:
        assert engine.tokenizer is tokenizer

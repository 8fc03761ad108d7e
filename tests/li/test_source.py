"""Where an engine comes from, and that it comes once."""

from __future__ import annotations

import threading
from typing import Any

import torch
from llama_index.core.base.llms.types import ChatMessage

from cachefriendly.demo import convert_demo_model
from cachefriendly.testing import ScriptedEngine, byte_tokenizer, tiny_model
from cachefriendly_li import HuggingFaceLLM
from cachefriendly_li.source import EngineSource


def test_an_engine_is_opened_once_however_many_ask() -> None:
    made: list[Any] = []

    def opener() -> Any:
        made.append(ScriptedEngine())
        return made[-1]

    source = EngineSource(opener)
    assert source.opened is None
    threads = [threading.Thread(target=source.get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [source.get()]


def test_equal_arguments_share_the_weights(demo_engine: Any) -> None:
    llm = HuggingFaceLLM(
        model_name=str(convert_demo_model()),
        device_map=None,
        model_kwargs={"torch_dtype": torch.float32},
    )
    assert llm.engine is demo_engine
    assert llm.metadata.context_window == 8192


def test_a_loaded_model_stays_its_owners() -> None:
    model, tokenizer = tiny_model("llama"), byte_tokenizer()
    llm = HuggingFaceLLM(model=model, tokenizer=tokenizer, max_new_tokens=3)
    assert llm.chat([ChatMessage("hi")]).raw["usage"]["completion_tokens"] <= 3
    assert llm.engine.model is model
    assert llm.model_name == "LlamaForCausalLM"
    llm.engine.close()
    assert model(torch.tensor([[1, 2]])).logits.shape[:2] == (1, 2)

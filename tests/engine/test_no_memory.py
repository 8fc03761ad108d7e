"""No memory to open a call on what is kept: kept tokens go, and only what fails alone fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from cachefriendly import (
    ChatRequest,
    ChatResult,
    Engine,
    EngineConfig,
    Message,
    RowFailed,
    Sampling,
)
from cachefriendly.store.manager import KVCacheManager
from cachefriendly.testing import byte_tokenizer, cold_generate, tiny_model

COLD = tiny_model("llama")


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(tiny_model("llama"), byte_tokenizer(), EngineConfig(check_model=False)) as made:
        yield made


def ask(engine: Engine) -> ChatResult:
    sampling = Sampling(max_tokens=4, temperature=0)
    return engine.chat(ChatRequest((Message("user", "Hi."),), sampling=sampling)).result()


def without_memory(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """The next ``times`` openings find none."""
    opened, left = KVCacheManager.open, [times]

    def no_memory(self: KVCacheManager, *args: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0:
            raise torch.OutOfMemoryError("out of memory: tried to allocate 1 GiB")
        return opened(self, *args)

    monkeypatch.setattr(KVCacheManager, "open", no_memory)


@pytest.mark.parametrize("times", [1, 2])
def test_the_engine_goes_on(engine: Engine, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    ask(engine)
    without_memory(monkeypatch, times)
    if times == 2:
        with pytest.raises(RowFailed, match="could not start: OutOfMemoryError"):
            ask(engine)
    result = ask(engine)
    assert result.report.reused_tokens == 0
    expected = cold_generate(COLD, result.prompt_ids, max_new_tokens=4)
    assert list(result.output_ids) == expected[: len(result.output_ids)]

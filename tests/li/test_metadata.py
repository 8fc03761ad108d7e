"""What LlamaIndex may ask of an LLM before anything is loaded."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, LLMMetadata
from pydantic import BaseModel

from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import CacheFriendlyLLM
from cachefriendly_li.metadata import EngineMetadata


class City(BaseModel):
    """A city."""

    name: str


def test_the_window_is_asked_for_once_and_only_when_it_is_read() -> None:
    asked: list[int] = []

    def window() -> int:
        asked.append(1)
        return 77

    metadata = EngineMetadata.of(window, model_name="m", is_chat_model=True)
    assert isinstance(metadata, LLMMetadata)
    assert (metadata.model_name, metadata.is_chat_model) == ("m", True)
    assert not asked
    assert (metadata.context_window, metadata.context_window) == (77, 77)
    assert asked == [1]
    with pytest.raises(AttributeError, match="other"):
        metadata.other  # noqa: B018


def test_it_is_dumped_whole() -> None:
    dumped = EngineMetadata.of(lambda: 77, model_name="m").model_dump()
    assert dumped == LLMMetadata(context_window=77, model_name="m").model_dump()


async def test_nothing_is_opened_to_learn_what_kind_of_llm_it_is() -> None:
    llm = CacheFriendlyLLM("no/such-model")
    assert llm.metadata.is_function_calling_model
    assert llm.as_structured_llm(City).to_payload()["class_name"] == "structured_llm"
    assert llm._source.opened is None


def test_the_structured_llm_says_which_model_answers() -> None:
    llm = CacheFriendlyLLM(engine=ScriptedEngine("{}")).as_structured_llm(City)
    payload: dict[str, Any] = llm.to_payload()
    assert payload["model_name"] == "scripted"
    assert llm.metadata.context_window == 2048
    with pytest.raises(ValueError, match="tool call"):
        llm.chat([ChatMessage("Paris?")])

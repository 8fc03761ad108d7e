"""Structured output on the demo model: valid by construction, in every form."""

from __future__ import annotations

from typing import Literal

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.prompts import PromptTemplate
from pydantic import BaseModel

from cachefriendly_li import CacheFriendlyLLM

pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")


class City(BaseModel):
    """A city."""

    name: Literal["Paris", "Rome"]


async def test_structured_output_is_valid_by_construction(llm: CacheFriendlyLLM) -> None:
    prompt = PromptTemplate("Describe {city}.")
    options = {"max_tokens": 64}
    city = llm.structured_predict(City, prompt, llm_kwargs=options, city="Paris")
    other = await llm.astructured_predict(City, prompt, llm_kwargs=options, city="Paris")
    streamed = list(llm.stream_structured_predict(City, prompt, llm_kwargs=options, city="Paris"))
    assert isinstance(city, City)
    assert city == other == streamed[-1]
    response = llm.as_structured_llm(City).chat([ChatMessage("Describe Rome.")], max_tokens=64)
    assert isinstance(response.raw, City)


def test_a_response_schema_makes_the_whole_reply_json(llm: CacheFriendlyLLM) -> None:
    schema = City.model_json_schema()
    text = llm.complete("Describe Paris as JSON.", response_schema=schema, max_tokens=48).text
    assert City.model_validate_json(text)

"""Structured output on the demo model: valid by construction, in every form."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.program import LLMTextCompletionProgram
from llama_index.core.prompts import PromptTemplate
from llama_index.core.types import BasePydanticProgram, PydanticProgramMode
from pydantic import BaseModel

from cachefriendly.testing import ScriptedEngine, scripted_replies
from cachefriendly_li import CacheFriendlyLLM
from tests.li.watch import call_text, ids_of

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


class Trip(BaseModel):
    """A trip."""

    title: str
    stops: list[City]


TRIP = '{"title": "A \\"b\\"", "stops": [{"name": "Rome"}]}'
SAY = PromptTemplate("Plan {what}.")


async def streamed(llm: CacheFriendlyLLM, form: str) -> list[Any]:
    if form == "stream":
        return list(llm.stream_structured_predict(Trip, SAY, what="it"))
    if form == "astream":
        stream = await llm.astream_structured_predict(Trip, SAY, what="it")
        return [value async for value in stream]
    chunks = llm.as_structured_llm(Trip).stream_chat([ChatMessage("Plan it.")])
    return [chunk.raw for chunk in chunks]


@pytest.mark.parametrize("form", ["stream", "astream", "as_structured_llm"])
async def test_an_object_grows_while_its_arguments_are_generated(
    tiny_llm: CacheFriendlyLLM, form: str
) -> None:
    llm = tiny_llm.model_copy(update={"max_new_tokens": 130})
    with scripted_replies(ids_of(call_text("Trip", TRIP))):
        values = await streamed(llm, form)
    whole = values[-1]
    assert isinstance(whole, Trip)
    assert whole == Trip.model_validate_json(TRIP)
    titles = [value.title for value in values if value.title]
    assert list(dict.fromkeys(titles)) == ["A", "A ", 'A "', 'A "b', 'A "b"']
    counts = [len(value.stops or ()) for value in values]
    assert counts == sorted(counts)
    assert len(values) > counts.count(1) > 1


@pytest.mark.skipif(
    LLMTextCompletionProgram.stream_call is BasePydanticProgram.stream_call,
    reason="the programs of an older core cannot stream",
)
@pytest.mark.parametrize("form", ["stream", "astream"])
async def test_a_program_mode_without_tools_is_llama_indexs(form: str) -> None:
    engine: Any = ScriptedEngine(TRIP)
    mode = PydanticProgramMode.LLM
    llm = CacheFriendlyLLM(engine=engine, pydantic_program_mode=mode)
    values = await streamed(llm, form)
    assert llm.structured_predict(Trip, SAY, what="it") == values[-1]
    assert [request.tools for request in engine.requests] == [(), ()]

"""Ways in which chat model integrations broke in applications in public, each tried on ours.

The address is for the background: repository and number of the public thread.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Iterator
from functools import reduce
from operator import add as merged
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from pydantic import BaseModel

from cachefriendly import Engine, Message, ToolCall
from cachefriendly.errors import RequestError, SchemaError
from cachefriendly.messages import InvalidToolCall
from cachefriendly.testing import (
    ScriptedEngine,
    byte_tokenizer,
    scripted_replies,
    templates,
    tiny_model,
)
from cachefriendly.testing.tokenizer import END_ID
from cachefriendly_lc import ChatCacheFriendly
from tests.lc.forms import FORMS
from tests.lc.tool_box import add, get_weather

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")

TWO_CALLS = "".join(
    f'<tool_call>\n{{"name": "add", "arguments": {{"a": {a}, "b": 1}}}}\n</tool_call>\n'
    for a in (1, 2)
).rstrip()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(tiny_model("llama"), byte_tokenizer(templates.NATIVE_TOOLS)) as engine:
        yield engine


@pytest.fixture
def model(engine: Engine) -> ChatCacheFriendly:
    return ChatCacheFriendly(engine=engine, temperature=0, max_tokens=200)


def script(*texts: str) -> list[list[int]]:
    return [[*byte_tokenizer()(text).input_ids, END_ID] for text in texts]


@pytest.mark.parametrize("form", FORMS)
async def test_parallel_calls_of_one_tool_stay_apart(model: ChatCacheFriendly, form: str) -> None:
    """langchain-ai/langchain 34654, 34807: chunks of two calls became one, or fragments."""
    bound = model.bind_tools([add])
    with scripted_replies(*script(TWO_CALLS)):
        if form.endswith("events_v3"):
            asked = await FORMS[form](
                model.model_copy(update={"output_version": "v1"}), [HumanMessage("1+1, 2+1?")], {}
            )
            return  # v3 streams start on the model itself, which has no tools bound
        asked = await FORMS[form](bound, [HumanMessage("1+1, 2+1?")], {})
    assert [call["args"] for call in asked.tool_calls] == [{"a": 1, "b": 1}, {"a": 2, "b": 1}]
    assert len({call["id"] for call in asked.tool_calls}) == 2
    assert not asked.invalid_tool_calls


async def test_parallel_calls_through_an_agent_that_streams_messages(
    model: ChatCacheFriendly,
) -> None:
    """langchain-ai/langchain 34654 as it was met: ``stream_mode="messages"``."""
    agent = create_agent(model, [add])
    with scripted_replies(*script(TWO_CALLS, "2 and 3.")):
        parts = [
            part
            async for part, _ in agent.astream(
                {"messages": [HumanMessage("1+1, 2+1?")]}, stream_mode="messages"
            )
        ]
    results = [part for part in parts if isinstance(part, ToolMessage)]
    assert sorted(result.content for result in results) == ["2", "3"]
    chunks = [part for part in parts if isinstance(part, AIMessageChunk)]
    ids = {call["id"] for chunk in chunks for call in chunk.tool_calls}
    assert ids == {result.tool_call_id for result in results}


async def test_text_streams_token_by_token_with_tools_bound(model: ChatCacheFriendly) -> None:
    """langchain-ai/langchain 26971, 29129: with tools bound the text came in one piece."""
    text = "It is sunny and warm in Oslo."
    with scripted_replies(*script(text, text)):
        chunks = list(model.bind_tools([get_weather]).stream("Weather?"))
        later = [chunk async for chunk in model.bind_tools([get_weather]).astream("Weather?")]
    for parts in (chunks, later):
        assert len([part for part in parts if part.text]) > len(text) / 2
        assert reduce(merged, parts).text == text


async def test_call_ids_are_the_same_wherever_they_are_read(model: ChatCacheFriendly) -> None:
    """langchain-ai/langchain 38675: chunks and the whole message carried different ids."""
    versions = ("v0", "v1")
    with scripted_replies(*script(*[TWO_CALLS] * 4)):
        for version in versions:
            bound = model.model_copy(update={"output_version": version}).bind_tools([add])
            for asked in (bound.invoke("?"), reduce(merged, bound.stream("?"))):
                ids = [call["id"] for call in asked.tool_calls]
                blocks = [b["id"] for b in asked.content_blocks if b["type"] == "tool_call"]
                assert ids == blocks
                assert all(ids)


@pytest.mark.parametrize("content", ["", [], [{"type": "text", "text": ""}]])
def test_a_call_without_text(model: ChatCacheFriendly, content: Any) -> None:
    """langchain-ai/langchain 34140, 31121: empty content beside a call was refused."""
    call = {"name": "add", "args": {"a": 1, "b": 1}, "id": "c1"}
    history = [
        HumanMessage("1+1?"),
        AIMessage(content, tool_calls=[call]),
        ToolMessage("2", tool_call_id="c1"),
    ]
    with scripted_replies(*script("2.")):
        assert model.bind_tools([add]).invoke(history).content == "2."


def test_an_agent_asked_nothing(model: ChatCacheFriendly) -> None:
    """langchain-ai/langchain-mcp-adapters 111: no message, an empty answer, no error."""
    agent = create_agent(model, [add])
    with pytest.raises(RequestError, match="message list is empty"):
        agent.invoke({"messages": []})


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Wheel(BaseModel):
    colour: Colour
    size: int | None = None


class Car(BaseModel):
    """A car."""

    wheels: list[Wheel]
    spare: Wheel


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_an_enum_is_no_schema(model: ChatCacheFriendly, method: Any) -> None:
    """langchain-ai/langchain 34970: taken without a word, and answered with nonsense."""
    with pytest.raises(SchemaError, match="Colour"):
        model.with_structured_output(Colour, method=method)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_nested_classes_and_enums(model: ChatCacheFriendly, method: Any) -> None:
    """oracle/langchain-oracle 65, langchain-ai/langchain 28412: references and enums broke."""
    car = model.with_structured_output(Car, method=method, max_tokens=300).invoke("A car.")
    assert isinstance(car, Car)
    assert isinstance(car.spare.colour, Colour)


@pytest.mark.parametrize("form", FORMS)
async def test_stop_given_twice(model: ChatCacheFriendly, form: str) -> None:
    """langchain-ai/langchain 31385: a stop of the model and one of the call were two arguments."""
    if form.endswith("events_v3"):
        pytest.skip("a v3 stream starts on the model itself")
    bound = model.model_copy(update={"stop": ["q"]}).bind(stop=["sunny"])
    with scripted_replies(*script("It is sunny.")):
        reply = await FORMS[form](bound, [HumanMessage("Weather?")], {})
    assert reply.text == "It is "
    assert reply.response_metadata["finish_reason"] == "stop"


class Heard(AsyncCallbackHandler):
    def __init__(self) -> None:
        self.text = ""

    async def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        await asyncio.sleep(0)
        self.text += token


async def test_async_handlers_are_awaited(model: ChatCacheFriendly) -> None:
    """langchain-ai/langchain 9865, 15169: handlers were never awaited, nothing was streamed."""
    text = "It is sunny."
    chain = ChatPromptTemplate.from_template("{q}") | model.model_copy(update={"streaming": True})
    first, second = Heard(), Heard()
    with scripted_replies(*script(text, text)):
        await chain.ainvoke({"q": "Weather?"}, {"callbacks": [first]})
        [part async for part in model.astream("Weather?", {"callbacks": [second]})]
    assert (first.text, second.text) == (text, text)


def test_a_reply_ends_where_the_turn_ends(model: ChatCacheFriendly) -> None:
    """langchain-ai/langchain 19770: a chat prompt through a pipeline never came to an end."""
    with scripted_replies(*script("Done.")):
        reply = model.invoke("Hello", max_tokens=1000)
    assert reply.text == "Done."
    assert reply.usage_metadata["output_tokens"] == len("Done.") + 1


@pytest.mark.parametrize("form", FORMS)
async def test_reasoning_is_a_block_on_every_form(form: str) -> None:
    """langchain-ai/langchain 38019, databricks-ai-bridge 133: reasoning vanished from events, or
    came back as a list of fragments."""
    engine = ScriptedEngine(Message("assistant", "Yes.", reasoning="Hm, let me see."))
    model = ChatCacheFriendly(engine=engine, output_version="v1")
    reply = await FORMS[form](model, [HumanMessage("hi")], {})
    blocks = [block for block in reply.content_blocks if block["type"] == "reasoning"]
    assert [block["reasoning"] for block in blocks] == ["Hm, let me see."]
    assert reply.text == "Yes."


@pytest.mark.parametrize("form", FORMS)
async def test_calls_are_blocks_on_every_form(form: str) -> None:
    """The same for tool calls: v3 events, too, give whole calls with their ids."""
    calls = (ToolCall("add", {"a": 1}, "c1"), ToolCall("add", {"a": 2}, "c2"))
    engine = ScriptedEngine(Message("assistant", "Let me see.", calls))
    model = ChatCacheFriendly(engine=engine)
    reply = await FORMS[form](model, [HumanMessage("hi")], {})
    assert [(call["id"], call["args"]) for call in reply.tool_calls] == [
        ("c1", {"a": 1}),
        ("c2", {"a": 2}),
    ]
    blocks = [block for block in reply.content_blocks if block["type"] == "tool_call"]
    assert [block["id"] for block in blocks] == ["c1", "c2"]
    assert reply.text == "Let me see."


@pytest.mark.parametrize("form", FORMS)
async def test_a_broken_call_comes_as_one_on_every_form(form: str) -> None:
    """Beside text and a whole call; LangChain's lenient parser must not mend it."""
    broken = InvalidToolCall(raw='{"a": 1, "b"', error="torn", name="add", id="c2")
    good = ToolCall("add", {"a": 1}, "c1")
    message = Message("assistant", "Hm.", (good,), invalid_tool_calls=(broken,))
    engine = ScriptedEngine(message, "Done.")
    model = ChatCacheFriendly(engine=engine)
    reply = await FORMS[form](model, [HumanMessage("hi")], {})
    assert [call["id"] for call in reply.tool_calls] == ["c1"]
    assert [call["id"] for call in reply.invalid_tool_calls] == ["c2"]
    model.invoke([HumanMessage("hi"), reply, ToolMessage("1", tool_call_id="c1")])
    back = engine.requests[-1].messages[1]
    assert (back.content, back.tool_calls) == ("Hm.", (good,))
    assert [call.raw for call in back.invalid_tool_calls] == [broken.raw]

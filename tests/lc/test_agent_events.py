"""Event streams of whole agents with tools that start early; what an agent's config may hold."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from cachefriendly.errors import RequestError
from cachefriendly.testing import ScriptedEngine
from tests.lc.early import CONFIG, Journal, agent_of, asking

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")

SAID = ["Let me see. ", "All is done."]
RESULTS = ["one of x", "two of y"]


@pytest.fixture
def agent() -> Any:
    journal = Journal()
    engine = ScriptedEngine(asking(("one", "x"), ("two", "y")), SAID[1])
    return agent_of(engine, [journal.tool("one"), journal.tool("two")], early=["one"])


def go() -> Any:
    return {"messages": [HumanMessage("Go.")]}


async def test_events_v2_tell_each_word_call_and_tool_once(agent: Any) -> None:
    events = [event async for event in agent.astream_events(go(), CONFIG, version="v2")]

    def heard(kind: str) -> list[Any]:
        return [event for event in events if event["event"] == kind]

    words = "".join(event["data"]["chunk"].text for event in heard("on_chat_model_stream"))
    assert words == "".join(SAID)
    assert [event["data"]["output"].text for event in heard("on_chat_model_end")] == SAID
    assert sorted(event["name"] for event in heard("on_tool_start")) == ["one", "two"]
    ends = sorted(event["data"]["output"].content for event in heard("on_tool_end"))
    assert ends == RESULTS


@pytest.mark.parametrize("form", ["stream_events", "astream_events"])
async def test_events_v3_end_with_the_whole_state(agent: Any, form: str) -> None:
    if form == "stream_events":
        output: Any = agent.stream_events(go(), CONFIG, version="v3").output
    else:
        output = await (await agent.astream_events(go(), CONFIG, version="v3")).output()
    messages = output["messages"]
    assert [m.text for m in messages] == ["Go.", SAID[0], *RESULTS, SAID[1]]
    assert [call["id"] for call in messages[1].tool_calls] == ["c1", "c2"]
    assert messages[1].response_metadata["cachefriendly"] == "cf1:0:1"


def test_unknown_keys_of_an_agents_config_mean_nothing(agent: Any) -> None:
    config: Any = {"configurable": {"thread_id": "t", "whatever": 4, "other": {"x": object()}}}
    assert agent.invoke(go(), config)["messages"][-1].text == SAID[1]


def test_a_wrong_type_in_an_agents_config_is_named(agent: Any) -> None:
    config: Any = {"configurable": {"thread_id": "t", "cache_namespace": 3}}
    with pytest.raises(RequestError, match="configurable cache_namespace=3 is int"):
        agent.invoke(go(), config)

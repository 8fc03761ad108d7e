"""A thread's exact ids go with its checkpoints, into whichever process goes on with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from cachefriendly import Engine
from cachefriendly.testing import byte_tokenizer, scripted_replies, templates, tiny_model
from cachefriendly.testing.tokenizer import END_ID
from cachefriendly_lc import CacheFriendlyMiddleware, ChatCacheFriendly
from tests.lc.early import CONFIG
from tests.lc.tool_box import add

# Not as any template would print it: keys in another order, and spaces.
CALL = '<tool_call>\n{"arguments": {"b": 2,   "a": 1}, "name": "add"}\n</tool_call>'
TOKENIZER = byte_tokenizer(templates.NATIVE_TOOLS)


def ids_of(text: str) -> list[int]:
    return [*TOKENIZER(text).input_ids, END_ID]


class Process:
    """An engine and an agent of their own over a checkpointer that outlives them."""

    def __init__(self, saver: Any, *, stored: bool = True) -> None:
        self.engine = Engine(tiny_model("llama"), TOKENIZER)
        model = ChatCacheFriendly(engine=self.engine, max_tokens=100)
        mine = [CacheFriendlyMiddleware(model)] if stored else []
        self.agent: Any = create_agent(model, [add], middleware=mine, checkpointer=saver)

    async def turn(self, text: str, *replies: str, form: str = "invoke") -> list[Any]:
        turn = {"messages": [HumanMessage(text)]}
        with scripted_replies(*map(ids_of, replies)):
            if form == "invoke":
                done = await asyncio.to_thread(self.agent.invoke, turn, CONFIG)
            else:
                done = await self.agent.ainvoke(turn, CONFIG)
        messages: list[Any] = done["messages"]
        return messages


@pytest.mark.parametrize("form", ["invoke", "ainvoke"])
async def test_another_process_goes_on_with_the_exact_ids(form: str) -> None:
    saver = InMemorySaver()
    old = Process(saver)
    await old.turn("1 + 2?", CALL, "It is 3.", form=form)
    here = await old.turn("Sure?", "Yes.", form=form)
    expected = old.engine.last_report
    # The same thread before its second turn, in a process that has never seen it.
    earlier = [s for s in old.agent.get_state_history(CONFIG) if len(s.values["messages"]) == 4]
    old.engine.close()
    new = Process(saver)
    turn = {"messages": [HumanMessage("Sure?")]}
    with scripted_replies(ids_of("Yes.")):
        there = await new.agent.ainvoke(turn, earlier[0].config)
    report = new.engine.last_report
    new.engine.close()
    assert expected is not None
    assert report is not None
    assert report.prompt_tokens == expected.prompt_tokens
    assert there["messages"][-1].response_metadata == here[-1].response_metadata  # names all ids


@pytest.mark.parametrize("form", ["invoke", "ainvoke"])
async def test_without_stored_turns_another_process_tokenizes_the_text(form: str) -> None:
    """What the test above would see if nothing were stored: another spelling of the call."""
    lengths = []
    for stored in (True, False):
        saver = InMemorySaver()
        await Process(saver, stored=stored).turn("1 + 2?", CALL, "It is 3.", form=form)
        new = Process(saver, stored=stored)
        await new.turn("Sure?", "Yes.", form=form)
        report = new.engine.last_report
        new.engine.close()
        assert report is not None
        lengths.append(report.prompt_tokens)
    assert lengths[0] == lengths[1] + len("   ") - len(" ")


async def test_turns_are_private_to_the_agent_and_constant_in_size() -> None:
    process = Process(InMemorySaver())
    for number in range(12):
        await process.turn(f"Question {number:02}?", "It is so.")
    state = process.agent.get_state(CONFIG).values
    turns = state["cachefriendly_turns"]
    handles = [m.response_metadata["cachefriendly"] for m in state["messages"][1::2]]
    assert list(turns) == handles
    sizes = [len(turns[handle]) for handle in handles]
    assert max(sizes[2:]) - min(sizes[2:]) <= 8
    with scripted_replies(ids_of("Yes.")):
        done = process.agent.invoke({"messages": [HumanMessage("?")]}, CONFIG)
    assert set(done) == {"messages"}
    process.engine.close()


async def test_without_a_thread_nothing_is_stored() -> None:
    process = Process(None)
    with scripted_replies(ids_of("Yes.")):
        steps = list(
            process.agent.stream({"messages": [HumanMessage("?")]}, stream_mode=["values"])
        )
    assert not any(values.get("cachefriendly_turns") for _, values in steps)
    process.engine.close()

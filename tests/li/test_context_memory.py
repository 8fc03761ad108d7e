"""Agents over one `Context`: with the stock memories they forget, with ours they remember."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import memory as stock
from llama_index.core.agent.workflow import FunctionAgent as StockFunctionAgent
from llama_index.core.memory import StaticMemoryBlock
from llama_index.core.workflow import Context

from cachefriendly.messages import Message
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import (
    CacheFriendlyLLM,
    ChatMemoryBuffer,
    ChatSummaryMemoryBuffer,
    FunctionAgent,
    Memory,
)
from tests.li.elsewhere import answer_from

# Workflows look at every attribute of an agent, deprecated ones of pydantic included.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")

DONE = Message("assistant", "It is 5.", handle="cf1:0:2")
FIRST, SECOND = Message("user", "2 + 3?"), Message("user", "And again?")
REMEMBERED = (FIRST, DONE, SECOND)

KINDS: dict[str, Any] = {
    "ChatMemoryBuffer": lambda llm, folder: ChatMemoryBuffer.from_defaults(llm=llm),
    "ChatSummaryMemoryBuffer": lambda llm, folder: ChatSummaryMemoryBuffer.from_defaults(llm=llm),
    "Memory": lambda llm, folder: Memory.from_defaults(llm=llm),
    "Memory in a file": lambda llm, folder: Memory.from_defaults(llm=llm, path=folder / "m.sqlite"),
}
STOCK: dict[str, Any] = {
    "no memory": lambda: None,
    "ChatMemoryBuffer": stock.ChatMemoryBuffer.from_defaults,
    "ChatSummaryMemoryBuffer": stock.ChatSummaryMemoryBuffer.from_defaults,
}


def agent_on(engine: Any, kind: Any = StockFunctionAgent) -> Any:
    return kind(tools=[], llm=CacheFriendlyLLM(engine=engine))


async def run_twice(agent: Any, **first: Any) -> None:
    """The second run is given the context alone."""
    context = Context(agent)
    await agent.run(FIRST.content, ctx=context, **first)
    await agent.run(SECOND.content, ctx=context)


@pytest.mark.parametrize("name", STOCK)
async def test_with_the_stock_memories_the_second_run_forgets(name: str) -> None:
    engine = ScriptedEngine(DONE)
    memory = STOCK[name]()
    with pytest.warns(Warning, match="memory"):
        await run_twice(agent_on(engine), **({"memory": memory} if memory else {}))
    assert engine.requests[-1].messages == (SECOND,)


@pytest.mark.parametrize("name", KINDS)
async def test_with_ours_it_remembers(name: str, tmp_path: Path) -> None:
    engine = ScriptedEngine(DONE)
    agent = agent_on(engine)
    await run_twice(agent, memory=KINDS[name](agent.llm, tmp_path))
    assert engine.requests[-1].messages == REMEMBERED


async def test_with_our_agent_it_remembers_without_being_given_a_memory() -> None:
    engine = ScriptedEngine(DONE)
    await run_twice(agent_on(engine, FunctionAgent))
    assert engine.requests[-1].messages == REMEMBERED


@pytest.mark.parametrize("name", KINDS)
async def test_tokens_are_counted_as_before_after_a_run(name: str, tmp_path: Path) -> None:
    """The memory of the second run is a copy out of JSON; the tokenizer is found again."""
    agent = agent_on(ScriptedEngine(DONE))
    context = Context(agent)
    memory = KINDS[name](agent.llm, tmp_path)
    await agent.run(FIRST.content, ctx=context, memory=memory)
    restored = Context.from_dict(agent, json.loads(json.dumps(context.to_dict())))
    twin = await restored.store.get("memory")
    assert twin is not memory
    assert twin.tokenizer_fn("é") == list("é".encode())
    assert await twin.aget_all() == await memory.aget_all()


LATER = """
import asyncio, json, sys
from llama_index.core.workflow import Context
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import CacheFriendlyLLM, FunctionAgent

async def later(stored):
    engine = ScriptedEngine("Yes.")
    agent = FunctionAgent(tools=[], llm=CacheFriendlyLLM(engine=engine))
    context = Context.from_dict(agent, stored)
    await agent.run("And again?", ctx=context)
    memory = await context.store.get("memory")
    seen = [[m.role, m.content, m.handle] for m in engine.requests[-1].messages]
    return {"seen": seen, "ids": memory.tokenizer_fn("é")}

print(json.dumps([asyncio.run(later(stored)) for stored in json.load(sys.stdin)]))
"""


async def test_in_another_process_it_remembers_too(tmp_path: Path) -> None:
    stored = []
    for kind in (*KINDS.values(), lambda llm, folder: None):
        agent = agent_on(ScriptedEngine(DONE), FunctionAgent)
        context, memory = Context(agent), kind(agent.llm, tmp_path)
        await agent.run(FIRST.content, ctx=context, **({"memory": memory} if memory else {}))
        stored.append(context.to_dict())
    block = StaticMemoryBlock(name="facts", static_content="tea")
    told = Memory.from_defaults(llm=agent.llm, memory_blocks=[block])
    context = Context(agent)
    await agent.run(FIRST.content, ctx=context, memory=told)
    stored.append(context.to_dict())

    *plain, with_block = answer_from(LATER, stored)
    expected = [[m.role, m.content, m.handle] for m in REMEMBERED]
    assert [answer["seen"] for answer in plain] == [expected] * 5
    assert all(answer["ids"] == list("é".encode()) for answer in plain)
    first = "<memory>\n<facts>\ntea\n</facts>\n</memory>\n2 + 3?"
    assert with_block["seen"] == [["user", first, None], *expected[1:]]

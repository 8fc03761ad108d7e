"""Many callers at once: every reply equals the one the same caller gets alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from cachefriendly import Engine
from cachefriendly.testing import byte_tokenizer, tiny_model
from cachefriendly_lc import ChatCacheFriendly
from tests.lc.usage import cache_read, held_after

SYSTEM = SystemMessage("You are a helpful assistant. Answer in one short sentence, please.")
DEPTHS = [
    pytest.param((8, 6), id="ci"),
    pytest.param((16, 50), id="long", marks=pytest.mark.long),
]


@pytest.fixture
def model() -> Iterator[ChatCacheFriendly]:
    with Engine(tiny_model("llama"), byte_tokenizer()) as engine:
        yield ChatCacheFriendly(engine=engine, temperature=0, max_tokens=6)


def talk(model: ChatCacheFriendly, who: int, calls: int, namespace: str) -> list[str]:
    """Conversations of three turns, one after the other; odd callers sample, with a seed."""
    said: list[str] = []
    history: list[Any] = []
    options: dict[str, Any] = {"temperature": 0.9} if who % 2 else {}
    for number in range(calls):
        if number % 3 == 0:
            history = [SYSTEM, HumanMessage(f"I am caller {who}, question {number}.")]
        reply = model.invoke(
            history,
            {"configurable": {"thread_id": f"{who} {number // 3}", "cache_namespace": namespace}},
            seed=number,
            **options,
        )
        said.append(f"{reply.content} {reply.usage_metadata['output_tokens']}")
        history += [reply, HumanMessage("Go on.")]
    return said


@pytest.mark.parametrize("depth", DEPTHS)
def test_threads(model: ChatCacheFriendly, depth: tuple[int, int]) -> None:
    callers, calls = depth
    alone = [talk(model, who, calls, "alone") for who in range(callers)]
    start = threading.Barrier(callers)

    def together(who: int) -> list[str]:
        start.wait()
        return talk(model, who, calls, "together")

    with ThreadPoolExecutor(callers) as pool:
        assert list(pool.map(together, range(callers))) == alone
    core = model.engine.stats().core
    assert core.running == 0
    assert core.forwards > 0


@pytest.mark.parametrize("count", [24, pytest.param(100, id="long", marks=pytest.mark.long)])
async def test_tasks(model: ChatCacheFriendly, count: int) -> None:
    questions = [[SYSTEM, HumanMessage(f"What comes after {n}?")] for n in range(count)]
    alone = [model.invoke(q, cache_namespace="alone") for q in questions]
    before = model.engine.stats().core.forwards
    replies: list[AIMessage] = await asyncio.gather(*[model.ainvoke(q) for q in questions])
    assert [r.content for r in replies] == [r.content for r in alone]
    # Together: what the first caller forwards of the common beginning, the others find held.
    assert model.engine.stats().core.forwards - before < count * 2
    assert sum(cache_read(r) > 60 for r in replies) >= count - 1


async def test_streams_side_by_side(model: ChatCacheFriendly) -> None:
    """Slow and fast readers, one of whom leaves: the others get what they get alone."""
    questions = [f"Tell me about {n}." for n in range(6)]
    alone = [model.invoke(q, cache_namespace="alone").content for q in questions]

    async def read(number: int) -> str:
        text = ""
        async for chunk in model.astream(questions[number]):
            text += chunk.text
            await asyncio.sleep(0.01 * (number % 3))
            if number == 5:
                break
        return text

    said = await asyncio.gather(*[read(n) for n in range(6)])
    assert said[:5] == alone[:5]
    assert alone[5].startswith(said[5])


async def test_two_event_loops(model: ChatCacheFriendly) -> None:
    """A model that lives longer than a loop: web servers and notebooks open one per request."""
    first = await model.ainvoke("Hello")

    def in_a_loop_of_its_own() -> AIMessage:
        return asyncio.run(model.ainvoke([HumanMessage("Hello"), first, HumanMessage("Why?")]))

    second = await asyncio.get_running_loop().run_in_executor(None, in_a_loop_of_its_own)
    assert cache_read(second) == held_after(first)

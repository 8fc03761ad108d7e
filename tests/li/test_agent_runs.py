"""Runs of one agent: further ones remember, cancelled ones leave no trace, others keep apart."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent as StockFunctionAgent
from llama_index.core.workflow import Context

from cachefriendly import Engine
from cachefriendly.messages import Message, ToolCall
from cachefriendly.testing import (
    ScriptedEngine,
    embedding_counter,
    scripted_replies,
    tiny_model,
)
from cachefriendly_li import CacheFriendlyLLM, ChatMemoryBuffer, FunctionAgent, ReActAgent
from tests.li.agents import WORKFLOW_WARNINGS, add, asking, grew
from tests.li.elsewhere import answer_from
from tests.li.watch import TOKENIZER, Watch, call_text, ids_of

pytestmark = WORKFLOW_WARNINGS

CALL = Message("assistant", "", (ToolCall("add", {"a": 2, "b": 3}, "c1"),), handle="cf1:0:1")
DONE = Message("assistant", "It is 5.", handle="cf1:0:2")


def agent_on(engine: Any, kind: Any = FunctionAgent, **options: Any) -> Any:
    return kind(tools=[add], llm=CacheFriendlyLLM(engine=engine), **options)


@pytest.mark.filterwarnings("ignore:Skipping serialization")
async def test_a_second_run_remembers_and_with_the_original_agent_it_forgets() -> None:
    told = []
    for kind in (StockFunctionAgent, FunctionAgent):
        engine = ScriptedEngine(DONE)
        agent = agent_on(engine, kind)
        context = Context(agent)
        await agent.run("2 + 3?", ctx=context)
        await agent.run("Sure?", ctx=context)
        told.append([m.content for m in engine.requests[1].messages])
    assert told == [["Sure?"], ["2 + 3?", "It is 5.", "Sure?"]]


async def test_a_memory_that_is_passed_is_the_one_that_grows() -> None:
    agent = agent_on(ScriptedEngine(DONE))
    memory = ChatMemoryBuffer.from_defaults(llm=agent.llm)
    context = Context(agent)
    await agent.run("2 + 3?", ctx=context, memory=memory)
    await agent.run("Sure?", ctx=context, memory=memory)
    assert len(memory.get()) == 4


async def test_a_context_counts_with_the_llms_tokenizer_after_it_was_stored() -> None:
    agent = agent_on(ScriptedEngine(DONE))
    context = Context(agent)
    await agent.run("2 + 3?", ctx=context)
    later = agent_on(ScriptedEngine(DONE))
    restored = Context.from_dict(later, json.loads(json.dumps(context.to_dict())))
    await later.run("Sure?", ctx=restored)
    memory = await restored.store.get("memory")
    assert memory.tokenizer_fn("äb") == list("äb".encode())


ANOTHER_PROCESS = """
import asyncio, json, sys
from llama_index.core.workflow import Context
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import CacheFriendlyLLM, FunctionAgent

def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

async def main():
    engine = ScriptedEngine("Yes.")
    agent = FunctionAgent(tools=[add], llm=CacheFriendlyLLM(engine=engine))
    context = Context.from_dict(agent, json.load(sys.stdin))
    await agent.run("Sure?", ctx=context)
    messages = engine.requests[0].messages
    print(json.dumps([[m.role, m.content, m.handle] for m in messages]))

asyncio.run(main())
"""


@pytest.mark.long
async def test_a_context_goes_on_in_another_process() -> None:
    engine = ScriptedEngine(CALL, DONE)
    agent = agent_on(engine)
    context = Context(agent)
    await agent.run("2 + 3?", ctx=context)
    seen = answer_from(ANOTHER_PROCESS, context.to_dict())
    known = [*engine.requests[1].messages, DONE, Message("user", "Sure?")]
    assert seen == [[m.role, m.content, m.handle] for m in known]


@pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent])
@pytest.mark.parametrize("stall", ["model", "tool"])
async def test_the_run_after_a_cancelled_one_is_exact(kind: Any, stall: str) -> None:
    begun = asyncio.Event()

    async def endless(text: str) -> str:
        """Never ends by itself."""
        begun.set()
        await asyncio.sleep(60)
        return text

    react = 'Thought: I wait.\nAction: endless\nAction Input: {"text": "x"}'
    reply = asking(("endless", "x")) if kind is FunctionAgent else react
    engine = ScriptedEngine(reply, "Thought: Ok.\nAnswer: Done.")
    engine.stall_at = 1 if stall == "model" else None
    llm = CacheFriendlyLLM(engine=engine)
    agent = kind(tools=[endless], llm=llm)
    context = Context(agent)
    handler = agent.run("Wait.", ctx=context)
    while not (engine.calls if stall == "model" else begun.is_set()):
        await asyncio.sleep(0)
    await handler.cancel_run()
    assert stall == "tool" or engine.calls[0].cancelled
    engine.stall_at = None
    result = await agent.run("Go on.", ctx=context)
    assert str(result).endswith("Done.")
    assert result.tool_calls == []
    assert [m.content for m in engine.requests[1].messages[-2:]] == ["Wait.", "Go on."]
    assert grew(engine)


async def test_results_of_a_cancelled_turn_never_count_in_the_next_one() -> None:
    """LlamaIndex collects results in its context: one of the old turn would complete the new."""
    begun = asyncio.Event()

    async def quick(text: str) -> str:
        """Works."""
        return f"quick {text}"

    async def slow(text: str) -> str:
        """Ends in the second turn alone."""
        if text == "old":
            begun.set()
            await asyncio.sleep(60)
        return f"slow {text}"

    replies = [asking(("quick", text), ("slow", text)) for text in ("old", "new")]
    agent = FunctionAgent(
        tools=[quick, slow], llm=CacheFriendlyLLM(engine=ScriptedEngine(*replies, "Done."))
    )
    context = Context(agent)
    handler = agent.run("Old.", ctx=context)
    await asyncio.wait_for(begun.wait(), 30)
    for _ in range(20):
        await asyncio.sleep(0)
    await handler.cancel_run()
    result = await agent.run("New.", ctx=context)
    assert [call.tool_output.content for call in result.tool_calls] == ["quick new", "slow new"]


async def test_after_a_cancelled_run_the_next_one_is_warm(
    tiny_llm: CacheFriendlyLLM, tiny_watch: Watch
) -> None:
    begun = asyncio.Event()

    async def endless() -> str:
        """Never ends by itself."""
        begun.set()
        await asyncio.sleep(60)
        return ""

    agent = FunctionAgent(tools=[endless], llm=tiny_llm)
    context = Context(agent)
    with scripted_replies(ids_of(call_text("endless", "{}")), ids_of("Done.")):
        handler = agent.run("Wait.", ctx=context)
        await asyncio.wait_for(begun.wait(), 30)
        await handler.cancel_run()
        assert str(await agent.run("Go on.", ctx=context)) == "Done."
    first, second = tiny_watch.reports
    assert second.prefilled_tokens <= len("Suser\nGo on.E\nSassistant\n")
    assert second.prompt_tokens - second.prefilled_tokens >= first.prompt_tokens - 11


async def test_exact_ids_go_with_the_context() -> None:
    """Half a character: its text cannot be tokenized back to what was generated."""
    stray = [TOKENIZER("\u00e9").input_ids[0], *ids_of("!")]
    entered, stored = [], None
    with ExitStack() as stack:
        for reply in (stray, ids_of("Ok.")):
            engine = stack.enter_context(Engine(tiny_model("llama"), TOKENIZER))
            agent = FunctionAgent(llm=CacheFriendlyLLM(engine=engine))
            context = Context(agent) if stored is None else Context.from_dict(agent, stored)
            with scripted_replies(reply), embedding_counter(engine.model) as seen:
                await agent.run("Hi", ctx=context)
            stored = json.loads(json.dumps(context.to_dict()))
            entered.append([token for ids in seen.ids for token in ids])
    assert entered[1][: len(entered[0])] == entered[0]


async def test_parallel_runs_on_one_llm_keep_apart(tiny_llm: CacheFriendlyLLM) -> None:
    agent = FunctionAgent(tools=[add], llm=tiny_llm, system_prompt="Be brief.")

    async def talk(name: str) -> list[str]:
        context = Context(agent)
        for question in (f"I am {name}.", "Who am I?"):
            await agent.run(question, ctx=context)
        memory = await context.store.get("memory")
        return [message.content for message in memory.get() if message.role == "user"]

    tiny_llm.max_new_tokens = 4
    names = ("Ada", "Bob")
    told = await asyncio.gather(*map(talk, names))
    assert told == [[f"I am {name}.", "Who am I?"] for name in names]

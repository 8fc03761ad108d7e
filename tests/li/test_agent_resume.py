"""A run that is resumed elsewhere, from a context stored in its middle."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from llama_index.core.workflow import Context

from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import (
    AgentWorkflow,
    CacheFriendlyLLM,
    ChatSummaryMemoryBuffer,
    FunctionAgent,
    Memory,
)
from tests.li.agents import WORKFLOW_WARNINGS, asking

pytestmark = WORKFLOW_WARNINGS

MEMORIES: list[Any] = [None, ChatSummaryMemoryBuffer, Memory]


async def stored_while_a_tool_runs(workflow: Any, begun: asyncio.Event, **options: Any) -> Any:
    context = Context(workflow)
    handler = workflow.run("Go.", ctx=context, **options)
    await asyncio.wait_for(begun.wait(), 30)
    for _ in range(20):  # LlamaIndex notes a step when it ended
        await asyncio.sleep(0)
    stored = json.dumps(context.to_dict())
    await handler.cancel_run()
    # As another process reads it: no object of this one is to be found.
    live = (await context.store.get("memory"))._live.name
    return json.loads(stored.replace(live, "gone"))


@pytest.mark.parametrize("kind", [FunctionAgent, AgentWorkflow])
@pytest.mark.parametrize("memory", MEMORIES)
async def test_a_resumed_run_remembers_with_the_llm(kind: Any, memory: Any) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(text: str) -> str:
        """Waits."""
        begun.set()
        await go_on.wait()
        return f"waited for {text}"

    def workflow_on(engine: Any) -> Any:
        agent = FunctionAgent(tools=[wait], llm=CacheFriendlyLLM(engine=engine))
        return agent if kind is FunctionAgent else AgentWorkflow(agents=[agent])

    options = {} if memory is None else {"memory": memory.from_defaults()}
    stored = await stored_while_a_tool_runs(
        workflow_on(ScriptedEngine(asking(("wait", "x")))), begun, **options
    )
    go_on.set()
    engine = ScriptedEngine("Done.")
    later = workflow_on(engine)
    context = Context.from_dict(later, stored)
    assert str(await later.run(ctx=context)) == "Done."
    said = [message.content for message in engine.requests[0].messages]
    assert said == ["Go.", "Let me see. ", "waited for x"]
    held = await context.store.get("memory")
    assert held.tokenizer_fn("äb") == list("äb".encode())
    if memory is ChatSummaryMemoryBuffer:
        assert held.llm.engine is engine

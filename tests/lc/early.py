"""Agents whose model calls tools by script, and tools that tell when they ran and with what."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from cachefriendly.messages import Message, ToolCall
from cachefriendly_lc import CacheFriendlyMiddleware, ChatCacheFriendly
from tests import journal
from tests.journal import SlowEngine

__all__ = ["CONFIG", "Journal", "SlowEngine", "agent_of", "asking", "run"]

CONFIG: Any = {"configurable": {"thread_id": "t"}}
FORMS = ("invoke", "ainvoke", "stream", "astream")


class Journal(journal.Journal):
    """Its tools note when they begin and end."""

    def tool(self, name: str, *, asynchronous: bool = False) -> StructuredTool:
        """A tool with one argument; it notes when it begins and ends."""

        def work(text: str) -> str:
            self.write(f"{name} begins")
            self.write(f"{name} ends")
            return f"{name} of {text}"

        async def awork(text: str) -> str:
            await asyncio.sleep(0)
            return work(text)

        chosen: dict[str, Any] = {"coroutine": awork} if asynchronous else {"func": work}
        return StructuredTool.from_function(name=name, description="Works on a text.", **chosen)


def asking(*calls: tuple[str, str]) -> Message:
    """A reply with calls: (tool, text); the ids are c1, c2, and so on."""
    made = (ToolCall(name, {"text": text}, f"c{n}") for n, (name, text) in enumerate(calls, 1))
    return Message("assistant", "Let me see. ", tuple(made), handle="cf1:0:1")


def agent_of(engine: Any, tools: Sequence[Any], *others: Any, early: Sequence[Any] = ()) -> Any:
    model = ChatCacheFriendly(engine=engine)
    mine = CacheFriendlyMiddleware(model, early_tools=early)
    return create_agent(model, tools, middleware=[mine, *others], checkpointer=InMemorySaver())


async def run(agent: Any, form: str, config: Any = CONFIG) -> list[BaseMessage]:
    """One turn in a call form; all messages of the thread."""
    turn = {"messages": [HumanMessage("Go.")]}
    if form == "invoke":
        await asyncio.to_thread(agent.invoke, turn, config)
    elif form == "ainvoke":
        await agent.ainvoke(turn, config)
    elif form == "stream":
        await asyncio.to_thread(lambda: list(agent.stream(turn, config, stream_mode="messages")))
    else:
        [part async for part in agent.astream(turn, config, stream_mode="messages")]
    messages: list[BaseMessage] = agent.get_state(config).values["messages"]
    return messages

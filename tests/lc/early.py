"""Agents whose model calls tools by script, and tools that tell when they ran and with what."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from cachefriendly.events import ChatEvent
from cachefriendly.messages import Message, ToolCall
from cachefriendly.testing import ScriptedEngine
from cachefriendly.testing.engine_double import ScriptedCall
from cachefriendly_lc import CacheFriendlyMiddleware, ChatCacheFriendly

__all__ = ["CONFIG", "Journal", "SlowEngine", "agent_of", "asking", "run"]

CONFIG: Any = {"configurable": {"thread_id": "t"}}
FORMS = ("invoke", "ainvoke", "stream", "astream")


class Journal:
    """What happened, in order, from whichever thread."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self._changed = threading.Condition()

    def write(self, entry: str) -> None:
        with self._changed:
            self.entries.append(entry)
            self._changed.notify_all()

    def wait_for(self, entry: str, timeout: float = 5.0) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: entry in self.entries, timeout)

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


class SlowEngine(ScriptedEngine):
    """Ends a reply only when all of ``awaited`` stands in the journal: its calls are read before.

    With a tool that starts after the turn it would wait in vain, so it gives up after a while.
    """

    def __init__(self, journal: Journal, *replies: str | Message, awaited: Sequence[str]) -> None:
        super().__init__(*replies)
        self._journal, self._awaited = journal, awaited

    def _call(self, events: Sequence[ChatEvent], timeout: float | None) -> ScriptedCall:
        call = super()._call(events, timeout)
        if len(events) > 1 and len(self.requests) == 1 and not self.prefills:
            _hold_back_the_end(call, self._journal, self._awaited)
        return call


def _hold_back_the_end(call: ScriptedCall, journal: Journal, awaited: Sequence[str]) -> None:
    playback = call._playback
    last = playback._items.pop()

    def end() -> None:
        for entry in awaited:
            journal.wait_for(entry, 2.0)
        journal.write("reply ends")
        playback.put(last)

    threading.Thread(target=end, daemon=True).start()


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

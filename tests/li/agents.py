"""Agents whose model calls tools by script, and tools that tell when they ran and with what."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from llama_index.core.tools import FunctionTool

from cachefriendly.messages import Message, ToolCall
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import FunctionAgent
from tests import journal
from tests.journal import SlowEngine
from tests.li.watch import call_text, ids_of

__all__ = [
    "HAND_TEXTS",
    "WORKFLOW_WARNINGS",
    "Journal",
    "SlowEngine",
    "add",
    "asking",
    "events_of",
    "grew",
    "two_agents",
    "until",
    "weather",
]

# LlamaIndex's own: workflows look at every attribute of an agent, deprecated ones of pydantic
# included, and ask a context whether it runs.
WORKFLOW_WARNINGS = [
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:is_running called from within a step"),
]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def weather(city: str) -> str:
    """Weather of a city."""
    return f"sunny in {city}"


HAND_TEXTS = [
    ids_of(call_text("handoff", f'{{"to_agent": "{name}", "reason": "r"}}'))
    for name in ("check", "write")
]
"""Ids of two replies: the first of `two_agents` hands to the other, which hands back."""


def two_agents(llm: Any, **options: Any) -> list[FunctionAgent]:
    """Of a workflow: each can hand to the other."""
    return [
        FunctionAgent(
            name=name,
            description=f"Can {name}.",
            system_prompt=f"You {name}.",
            tools=[add],
            llm=llm,
            **options,
        )
        for name in ("write", "check")
    ]


class Journal(journal.Journal):
    """Its tools note when they begin and end."""

    def tool(self, name: str, *, asynchronous: bool = False, **options: Any) -> FunctionTool:
        """A tool with one argument; it notes when it begins and ends."""

        def work(text: str) -> str:
            self.write(f"{name} begins")
            self.write(f"{name} ends")
            return f"{name} of {text}"

        async def awork(text: str) -> str:
            await asyncio.sleep(0)
            return work(text)

        chosen: dict[str, Any] = {"async_fn": awork} if asynchronous else {"fn": work}
        return FunctionTool.from_defaults(
            name=name, description="Works on a text.", **chosen, **options
        )


def asking(*calls: tuple[str, str], text: str = "Let me see. ") -> Message:
    """A reply with calls: (tool, text); the ids are c1, c2, and so on."""
    made = (ToolCall(name, {"text": text}, f"c{n}") for n, (name, text) in enumerate(calls, 1))
    return Message("assistant", text, tuple(made), handle="cf1:0:1")


async def events_of(handler: Any) -> list[Any]:
    """All events of a run, its result last."""
    events = [event async for event in handler.stream_events()]
    await handler
    return events


async def until(condition: Any, timeout: float = 10) -> None:
    for _ in range(int(timeout / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never happened")


def grew(engine: ScriptedEngine) -> bool:
    """Whether every prompt begins with the one before."""
    asked = [request.messages for request in engine.requests]
    return all(later[: len(before)] == before for before, later in pairwise(asked))

"""Bytes that a checkpointer stores for an agent's thread: message lists against state diffs.

The same agent twice, with LangChain's `AgentState` and with `StateDiffAgentState`. Each turn is
a question, a tool call, its result and an answer: four messages in five checkpoints. No model
runs: what is stored depends on the messages only.

Prediction before the first run: a list is stored again with each of its 4 changes a turn, a diff
once, so diffs take about 1/20 of the messages' bytes after 10 turns; LangGraph's own 3.5 kB of
checkpoints a turn are the same on both sides.
"""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from langchain.agents import AgentState, create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from record import keep

from cachefriendly import Message, ToolCall
from cachefriendly.testing import ScriptedEngine
from cachefriendly_lc import ChatCacheFriendly, StateDiffAgentState

LIMITS = {10: 0.87, 50: 0.95}
"""Turns, and the share of the bytes that diffs have to save by then."""

COPIES = (26, 51, 101)
"""Turns up to 200 in which diffs store a full copy: 100, 200 and 400 updates after the first."""

SENTENCE = "The ship left the harbour at dawn, and the crew sang while wind filled the sails. "


@dataclass(frozen=True)
class Texts:
    """Characters of a turn's question, tool result and answer."""

    question: int
    result: int
    answer: int


TYPICAL = Texts(question=150, result=800, answer=400)
SHORT = Texts(question=60, result=60, answer=60)


def turns_of(schema: type[Any], saver: Any, texts: Texts, turns: int) -> Iterator[Any]:
    """Runs an agent turn by turn; yields after each."""

    @tool
    def look_up(topic: str) -> str:
        """Look up a topic."""
        return _text(texts.result)

    replies: list[Message] = []
    for turn in range(turns):
        call = ToolCall("look_up", {"topic": f"topic {turn}"}, f"call_{turn:08}")
        replies.append(Message("assistant", "", (call,), handle=_handle(2 * turn)))
        replies.append(Message("assistant", _text(texts.answer), handle=_handle(2 * turn + 1)))
    model = ChatCacheFriendly(engine=ScriptedEngine(*replies))
    agent = create_agent(model, [look_up], state_schema=schema, checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    for _ in range(turns):
        agent.invoke({"messages": [HumanMessage(_text(texts.question))]}, config)
        yield agent


def _text(characters: int) -> str:
    return (SENTENCE * (characters // len(SENTENCE) + 1))[:characters]


def _handle(number: int) -> str:
    return f"cf1:{'0' * 12}:{number:032x}"


@contextmanager
def opened(kind: str) -> Iterator[Any]:
    if kind == "InMemorySaver":
        yield InMemorySaver()
        return
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
        yield SqliteSaver(connection)


def stored_bytes(saver: Any) -> int:
    """Serialised values, checkpoints and metadata; not keys, indexes and padding."""
    if isinstance(saver, SqliteSaver):
        return sum(
            saver.conn.execute(f"SELECT coalesce(sum({columns}), 0) FROM {table}").fetchone()[0]
            for table, columns in [
                ("checkpoints", "length(checkpoint) + length(metadata)"),
                ("writes", "length(value)"),
            ]
        )
    blobs = sum(len(data) for _, data in saver.blobs.values())
    writes = sum(len(w[2][1]) for kept in saver.writes.values() for w in kept.values())
    checkpoints = (
        c for spaces in saver.storage.values() for s in spaces.values() for c in s.values()
    )
    return blobs + writes + sum(len(value[1]) for c in checkpoints for value in c[:2])


def grown(schema: type[Any], kind: str, texts: Texts, turns: int) -> list[int]:
    """Stored bytes after 0, 1, ... turns."""
    with opened(kind) as saver:
        return [0, *(stored_bytes(saver) for _ in turns_of(schema, saver, texts, turns))]


def compared(kind: str, texts: Texts) -> dict[str, Any]:
    lists, diffs = (grown(s, kind, texts, 50) for s in (AgentState, StateDiffAgentState))
    saved = {turns: round(1 - diffs[turns] / lists[turns], 4) for turns in LIMITS}
    return {
        "saver": kind,
        "characters": vars(texts),
        "bytes_lists": {turns: lists[turns] for turns in LIMITS},
        "bytes_diffs": {turns: diffs[turns] for turns in LIMITS},
        "saved": saved,
    }


def bytes_per_turn(kind: str, texts: Texts, turns: int = 200) -> list[int]:
    """Bytes that each turn adds with diffs; number 0 is the first turn."""
    sizes = grown(StateDiffAgentState, kind, texts, turns)
    return [after - before for before, after in pairwise(sizes)]


def steady(kind: str, texts: Texts, turns: int = 200) -> dict[str, Any]:
    """Whether turn 10 and all later ones cost the same, apart from the full copies."""
    added = bytes_per_turn(kind, texts, turns)
    plain = [size for turn, size in enumerate(added, 1) if turn >= 10 and turn not in COPIES]
    return {
        "saver": kind,
        "bytes_of_turn_10": added[9],
        "smallest_and_largest_later": [min(plain), max(plain)],
        "full_copies": {turn: added[turn - 1] for turn in COPIES if turn <= turns},
        "bytes_after_all": sum(added),
        "turns": turns,
        "constant": max(plain) <= 1.02 * min(plain),
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    rows, flat, passed = [], [], True
    for kind in ("InMemorySaver", "SqliteSaver"):
        for texts in (TYPICAL, SHORT):
            rows.append(compared(kind, texts))
        saved = rows[-2]["saved"]
        passed &= all(saved[turns] >= limit for turns, limit in LIMITS.items())
        flat.append(steady(kind, TYPICAL))
        passed &= flat[-1]["constant"]
    packages = ("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite", "langchain")
    result = {
        "limits": LIMITS,
        "packages": {name: version(name) for name in packages},
        "limits_hold_for": vars(TYPICAL),
        "rows": rows,
        "steady": flat,
    }
    keep("state_bytes", result, passed=passed)


if __name__ == "__main__":
    main()

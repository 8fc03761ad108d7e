"""Bytes that LlamaIndex memories store: the stock ones against state diffs.

Two comparisons over the same conversation. How a database file grows, LlamaIndex's SQL store
against state diffs. And what a store that is saved after each turn writes in all: the stock chat
store writes itself whole, a log its new lines. No model runs: what is stored depends on the
messages only.

Prediction before the first run: the file grows linearly on both sides, with diffs at about half
the bytes (one row a message on both, without three indexes); saved after each turn, the stock
store writes 50 turns' messages 25 times on average, the log once, so 25 times less at 50 turns and
100 times less at 200. Came out: the file at 0.85 of the bytes (the messages themselves are most of
it), saves 26 and 102 times less.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.memory import Memory as StockMemory
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore
from record import keep

from cachefriendly_li import ChatMemoryBuffer, Memory

TURNS = (10, 50, 200)
SENTENCE = "The ship left the harbour at dawn, and the crew sang while wind filled the sails. "


def conversation(turns: int) -> Iterator[list[ChatMessage]]:
    """Each turn a question, a tool call, its result and an answer: about 1.4 kB of text."""
    for turn in range(turns):
        call = ToolCallBlock(
            tool_call_id=f"call_{turn:08}", tool_name="look_up", tool_kwargs={"topic": str(turn)}
        )
        yield [
            ChatMessage(role="user", content=_text(150)),
            ChatMessage(role="assistant", blocks=[call], additional_kwargs=_handle(2 * turn)),
            ChatMessage(
                role="tool",
                content=_text(800),
                additional_kwargs={"tool_call_id": f"call_{turn:08}"},
            ),
            ChatMessage(
                role="assistant", content=_text(400), additional_kwargs=_handle(2 * turn + 1)
            ),
        ]


def _text(characters: int) -> str:
    return (SENTENCE * (characters // len(SENTENCE) + 1))[:characters]


def _handle(number: int) -> dict[str, str]:
    return {"cachefriendly": f"cf1:{'0' * 12}:{number:032x}"}


def file_sizes(stock: bool, turns: int) -> list[int]:
    """Bytes of the database file after 0, 1, ... turns."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.sqlite"
        return asyncio.run(_file_sizes(stock, path, turns))


async def _file_sizes(stock: bool, path: Path, turns: int) -> list[int]:
    uri = f"sqlite+aiosqlite:///{path}"
    kind: Any = StockMemory if stock else Memory
    memory = kind.from_defaults(
        session_id="s", async_database_uri=uri, token_limit=10**9, tokenizer_fn=str.split
    )
    sizes = [0]
    for messages in conversation(turns):
        await memory.aput_messages(messages)
        sizes.append(path.stat().st_size)
    if isinstance(memory.sql_store, SQLAlchemyChatStore) and memory.sql_store._async_engine:
        await memory.sql_store._async_engine.dispose()
    return sizes


def written_by_saving(turns: int) -> dict[str, list[int]]:
    """Bytes written in all when a buffer is saved after each turn: whole, and as new lines."""
    memory = ChatMemoryBuffer.from_defaults(token_limit=10**9, tokenizer_fn=str.split)
    whole, lines = [], []
    for messages in conversation(turns):
        known = len(memory.log) if memory.log is not None else 0
        memory.put_messages(messages)
        assert memory.log is not None
        dumped = [message.model_dump_json() for message in memory.get_all()]
        whole.append(sum(map(len, dumped)))  # what `SimpleChatStore.persist` writes, at least
        lines.append(len(memory.log.to_json_lines(since=known).encode()))
    return {"whole": list(accumulate(whole)), "lines": list(accumulate(lines))}


def constant(sizes: list[int], window: int = 10) -> bool:
    """Whether every ten turns from turn 10 on add about the same: files grow by whole pages."""
    marks = sizes[10::window]
    steps = [after - before for before, after in pairwise(marks)]
    return max(steps) <= 1.25 * min(steps) + 8192


def measured(turns: tuple[int, ...] = TURNS) -> dict[str, Any]:
    most = max(turns)
    stock, ours = file_sizes(True, most), file_sizes(False, most)
    saved = written_by_saving(most)
    return {
        "database_file": {
            "stock": {n: stock[n] for n in turns},
            "diffs": {n: ours[n] for n in turns},
            "diffs_per_turn_constant": constant(ours),
        },
        "saved_after_each_turn": {
            "stock_store_whole": {n: saved["whole"][n - 1] for n in turns},
            "new_lines_of_the_log": {n: saved["lines"][n - 1] for n in turns},
        },
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    result = measured()
    file, saves = result["database_file"], result["saved_after_each_turn"]
    passed = (
        file["diffs_per_turn_constant"]
        and all(file["diffs"][n] <= file["stock"][n] for n in TURNS)
        and saves["stock_store_whole"][200] > 50 * saves["new_lines_of_the_log"][200]
    )
    packages = ("llama-index-core", "sqlalchemy", "pydantic")
    result["packages"] = {name: version(name) for name in packages}
    keep("li_state_bytes", result, passed=passed)


if __name__ == "__main__":
    main()

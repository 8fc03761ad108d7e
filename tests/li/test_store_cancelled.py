"""Who is cancelled while a store writes a file goes on when it is written: never before."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from cachefriendly.state import SqliteLog
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import CacheFriendlyLLM, ChatMemoryBuffer, Memory, SimpleChatEngine
from cachefriendly_li.chat_store import StateDiffChatStore


class SlowDisk:
    """The next write begins when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waits, self.begun, self.go_on = False, threading.Event(), threading.Event()
        append = SqliteLog.append

        def slow(log: SqliteLog, change: Any) -> Any:
            if self.waits:
                self.waits = False
                self.begun.set()
                assert self.go_on.wait(30)
            return append(log, change)

        monkeypatch.setattr(SqliteLog, "append", slow)


def memory_in(path: Path, kind: str) -> Any:
    if kind == "buffer":
        return ChatMemoryBuffer.from_defaults(chat_store=StateDiffChatStore(path))
    return Memory.from_defaults(session_id="s", path=path)


@pytest.mark.parametrize("kind", ["buffer", "memory"])
async def test_a_turn_cancelled_while_its_question_is_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    memory = memory_in(tmp_path / "chat.sqlite", kind)
    llm: Any = CacheFriendlyLLM(engine=ScriptedEngine("One."))  # type: ignore[arg-type]
    chat = SimpleChatEngine.from_defaults(llm=llm, memory=memory)
    disk = SlowDisk(monkeypatch)
    disk.waits = True
    task = asyncio.create_task(chat.achat("First."))
    assert await asyncio.to_thread(disk.begun.wait, 30)
    task.cancel()
    asyncio.get_running_loop().call_later(0.05, disk.go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    await chat.achat("Second.")
    assert [message.content for message in await memory.aget_all()] == ["Second.", "One."]

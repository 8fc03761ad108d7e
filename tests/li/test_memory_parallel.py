"""Memories in many hands: threads and tasks that put and get at the same time lose nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store import SimpleChatStore

from cachefriendly.state import MemoryLog, StateLog
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import CacheFriendlyLLM, ChatMemoryBuffer, ChatSummaryMemoryBuffer, Memory
from cachefriendly_li.chat_store import StateDiffChatStore

KINDS = [ChatMemoryBuffer, ChatSummaryMemoryBuffer, Memory]
HANDS, EACH = 4, 5


@pytest.fixture(autouse=True)
def slow_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others come in between where a log is made and where it is read."""
    begin, read = MemoryLog.__init__, MemoryLog.read

    def slow_init(self: MemoryLog, log: StateLog | None = None) -> None:
        time.sleep(0.005)
        begin(self, log)

    def slow_read(self: MemoryLog) -> StateLog:
        log = read(self)
        time.sleep(0.0005)
        return log

    monkeypatch.setattr(MemoryLog, "__init__", slow_init)
    monkeypatch.setattr(MemoryLog, "read", slow_read)


def memory_of(kind: Any) -> Any:
    return kind.from_defaults(token_limit=10_000, tokenizer_fn=list)


def said(hand: int, number: int) -> ChatMessage:
    return ChatMessage(role="user", content=f"{hand}:{number}")


def check_whole(messages: Sequence[ChatMessage]) -> None:
    """Each message once, those of a hand in its order."""
    texts = [message.content or "" for message in messages]
    for hand in range(HANDS):
        own = [text for text in texts if text.startswith(f"{hand}:")]
        assert own == [f"{hand}:{number}" for number in range(EACH)]
    assert len(texts) == HANDS * EACH


@pytest.mark.parametrize("kind", KINDS)
def test_threads_put_and_get_at_once(kind: Any) -> None:
    memory = memory_of(kind)

    def work(hand: int) -> None:
        for number in range(EACH):
            memory.put(said(hand, number))
            assert f"{hand}:{number}" in [m.content for m in memory.get()]

    with ThreadPoolExecutor(HANDS) as pool:
        list(pool.map(work, range(HANDS)))
    check_whole(memory.get_all())


@pytest.mark.parametrize("kind", KINDS)
async def test_tasks_put_and_get_at_once(kind: Any) -> None:
    """`aget` may run in a thread beside an `aput` in the loop."""
    memory = memory_of(kind)

    async def work(hand: int) -> None:
        for number in range(EACH):
            await memory.aput(said(hand, number))
            assert f"{hand}:{number}" in [m.content for m in await memory.aget()]

    await asyncio.gather(*(work(hand) for hand in range(HANDS)))
    check_whole(await memory.aget_all())


class RemoteStore(SimpleChatStore):
    """Hands out lists of its own, as one in a database does."""

    def get_messages(self, key: str) -> list[ChatMessage]:
        return list(super().get_messages(key))


@pytest.mark.parametrize("store", [StateDiffChatStore, RemoteStore])
def test_what_is_put_in_while_a_summary_is_written_stays(store: Any) -> None:
    engine: Any = ScriptedEngine("We counted.")
    answer = engine.chat

    def slow_chat(request: Any, **options: Any) -> Any:
        memory.put(said(9, 9))
        return answer(request, **options)

    engine.chat = slow_chat
    memory = ChatSummaryMemoryBuffer.from_defaults(
        llm=CacheFriendlyLLM(engine=engine),
        chat_store=store(),
        chat_history=[said(hand, number) for hand in range(4) for number in range(6)],
        token_limit=70,
        tokenizer_fn=list,
    )
    texts = [message.content for message in memory.get()]
    assert texts[0] == "We counted."
    assert texts[-2:] == ["3:5", "9:9"]

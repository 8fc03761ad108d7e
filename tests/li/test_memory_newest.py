"""A turn that is taken back, or changed, leaves the rest of its memory as it was."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import Field
from llama_index.core.memory.memory import BaseMemoryBlock
from llama_index.core.storage.chat_store.base_db import MessageStatus

from cachefriendly.errors import RequestError
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import (
    CacheFriendlyLLM,
    ContextChatEngine,
    Memory,
    SimpleChatEngine,
)
from tests.li.documents import FORMS, WordRetriever, ask
from tests.li.stock_memory import stock_memory


class Diary(BaseMemoryBlock[str]):
    """Tells how many messages it was given."""

    given: list[str] = Field(default_factory=list)

    async def _aget(self, messages: Any = None, **kwargs: Any) -> str:
        return f"{len(self.given)} given."

    async def _aput(self, messages: list[ChatMessage]) -> None:
        self.given += [message.content or "" for message in messages]


def small(make: Any, *blocks: Any) -> Any:
    """It holds two short turns and archives older ones."""
    return make(token_limit=100, token_flush_size=40, tokenizer_fn=list, memory_blocks=list(blocks))


async def texts(memory: Any, status: MessageStatus) -> list[str]:
    return [message.content or "" for message in await memory.aget_all(status=status)]


@pytest.mark.parametrize(
    ("make", "form"), [*((Memory.from_defaults, form) for form in FORMS), (stock_memory, "achat")]
)
async def test_a_turn_that_fails_brings_no_archived_message_back(make: Any, form: str) -> None:
    memory = small(make)
    engine: Any = ScriptedEngine("The answer is that.")
    chat = SimpleChatEngine.from_defaults(llm=CacheFriendlyLLM(engine=engine), memory=memory)
    for number in range(4):
        await ask(chat, form, f"Question number {number}?")
    before = [await texts(memory, status) for status in MessageStatus]
    assert all(before)
    engine.replies = []
    with pytest.raises(RequestError):
        await ask(chat, form, "Q?")
    assert [await texts(memory, status) for status in MessageStatus] == before


@pytest.mark.parametrize("form", FORMS)
async def test_a_turn_that_fails_takes_no_memory_block_away(form: str) -> None:
    """What earlier turns were told stands in their messages, and is replayed."""
    memory = small(Memory.from_defaults, Diary(name="diary"))
    engine: Any = ScriptedEngine("Yes.")
    chat = SimpleChatEngine.from_defaults(llm=CacheFriendlyLLM(engine=engine), memory=memory)
    await ask(chat, form, "One?")
    told = [message.content for message in await memory.aget()]
    assert "0 given." in told[0]
    engine.replies = []
    with pytest.raises(RequestError):
        await ask(chat, form, "Two?")
    assert [message.content for message in await memory.aget()] == told


@pytest.mark.parametrize("form", FORMS)
async def test_nodes_refined_over_give_a_block_no_message_twice(form: str) -> None:
    pools = " ".join(f"Pool number {number} is deep." for number in range(150))
    diary = Diary(name="diary")
    memory = Memory.from_defaults(token_limit=2000, tokenizer_fn=list, memory_blocks=[diary])
    engine: Any = ScriptedEngine("Yes.", context_window=3000)
    chat = ContextChatEngine.from_defaults(
        WordRetriever({"tram": "Trams run. " * 80, "pools": pools}),
        llm=CacheFriendlyLLM(engine=engine, max_new_tokens=20),
        memory=memory,
        context_template="Notes: {context_str}",
        context_refine_template="More: {context_msg} So far: {existing_answer}",
    )
    for number in range(4):
        await ask(chat, form, f"The tram {number}?")
    await ask(chat, form, "The pools?")
    assert len(engine.requests) >= 6
    await ask(chat, form, "The tram 4?")
    archived = await memory.aget_all(status=MessageStatus.ARCHIVED)
    assert diary.given == [message.content for message in archived]

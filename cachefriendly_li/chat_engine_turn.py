"""One turn on its way into a memory: the user's message and the reply, or neither."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, closing
from types import TracebackType
from typing import Self

from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.memory import BaseMemory

from cachefriendly_li.memory_newest import achange_newest, change_newest

__all__ = ["MemoryTurn", "prefix_tokens"]


class MemoryTurn:
    """A turn in a conversation whose beginning, ``prefix``, is not in memory and never changes.

    The user's message enters memory before the LLM is asked, so that memory can make room for it.
    A context manager, sync and async: when its block fails, the message is taken out again, so
    that a retry does not find it there a second time.
    """

    def __init__(self, memory: BaseMemory, prefix: Sequence[ChatMessage]) -> None:
        self._memory = memory
        self._prefix = tuple(prefix)
        self._asked: ChatMessage | None = None

    def begin(self, message: ChatMessage) -> list[ChatMessage]:
        """Take the user's message in; returns the conversation to send, which ends with it."""
        self._asked = message
        self._memory.put(message)
        tokens = prefix_tokens(self._memory, self._prefix)
        held = self._memory.get(input=message.content, initial_token_count=tokens)
        return self._conversation(held, message)

    async def abegin(self, message: ChatMessage) -> list[ChatMessage]:
        self._asked = message
        await self._memory.aput(message)
        # Counting tokens takes time, and the first count loads the tokenizer with its model.
        tokens = await asyncio.to_thread(prefix_tokens, self._memory, self._prefix)
        held = await self._memory.aget(input=message.content, initial_token_count=tokens)
        return self._conversation(held, message)

    def history(self, input: str | None = None) -> list[ChatMessage]:
        """What memory would send of the turns before."""
        tokens = prefix_tokens(self._memory, self._prefix)
        return self._memory.get(input=input, initial_token_count=tokens)

    async def ahistory(self, input: str | None = None) -> list[ChatMessage]:
        tokens = await asyncio.to_thread(prefix_tokens, self._memory, self._prefix)
        return await self._memory.aget(input=input, initial_token_count=tokens)

    def change(self, message: ChatMessage) -> None:
        """Put another message where the user's is: what was sent in the end."""
        if change_newest(self._memory, message, self._is_newest):
            self._asked = message

    async def achange(self, message: ChatMessage) -> None:
        if await achange_newest(self._memory, message, self._is_newest):
            self._asked = message

    def watch(
        self, chunks: Generator[ChatResponse, None, None]
    ) -> Generator[ChatResponse, None, None]:
        """The chunks of the reply; a stream that breaks takes the turn back."""
        with self, closing(chunks):
            yield from chunks

    async def awatch(
        self, chunks: AsyncGenerator[ChatResponse, None]
    ) -> AsyncGenerator[ChatResponse, None]:
        async with self, aclosing(chunks):
            async for chunk in chunks:
                yield chunk

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._asked is not None:
            change_newest(self._memory, None, self._is_newest)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._asked is not None:
            await achange_newest(self._memory, None, self._is_newest)

    def _conversation(self, held: list[ChatMessage], message: ChatMessage) -> list[ChatMessage]:
        # Some memories return nothing when the newest message alone is more than they may hold.
        newest = held if self._is_newest(held) else [*held, message]
        return [*self._prefix, *newest]

    def _is_newest(self, held: Sequence[ChatMessage]) -> bool:
        """A memory may give a copy, with more text in it than was put in."""
        if self._asked is None or not held or held[-1].role != self._asked.role:
            return False
        return (self._asked.content or "") in (held[-1].content or "")


def prefix_tokens(memory: BaseMemory, prefix: Sequence[ChatMessage]) -> int:
    """Tokens that the prefix takes from what a memory may hold; 0 where it does not count."""
    tokenizer = getattr(memory, "tokenizer_fn", None)
    if tokenizer is None:
        return 0
    return len(tokenizer(" ".join(message.content or "" for message in prefix)))

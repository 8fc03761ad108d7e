"""The synchronous half of `Memory`, over the asynchronous one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import Memory as StockMemory
from llama_index.core.storage.chat_store.base_db import MessageStatus

__all__ = ["SyncMemory", "wait_for"]

_T = TypeVar("_T")


def wait_for(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine, from sync code; where a loop runs, in a thread of its own.

    LlamaIndex's own helper leaves an open event loop behind.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    context = copy_context()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(context.run, asyncio.run, work).result()


class SyncMemory(StockMemory):
    """LlamaIndex's `Memory` whose sync methods close what they open."""

    def get(self, input: str | ChatMessage | None = None, **block_kwargs: Any) -> list[ChatMessage]:
        return wait_for(self.aget(input=input, **block_kwargs))

    def get_all(self, status: MessageStatus | None = None) -> list[ChatMessage]:
        return wait_for(self.aget_all(status=status))

    def put(self, message: ChatMessage) -> None:
        wait_for(self.aput(message))

    def put_messages(self, messages: list[ChatMessage]) -> None:
        wait_for(self.aput_messages(messages))

    def set(self, messages: list[ChatMessage]) -> None:
        wait_for(self.aset(messages))

    def reset(self) -> None:
        wait_for(self.areset())

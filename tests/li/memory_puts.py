"""Messages put into a memory one after the other, or all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import BaseMemory


async def put_all(memory: BaseMemory, messages: Sequence[ChatMessage], *, together: bool) -> None:
    puts = [memory.aput(message) for message in messages]
    if together:
        await asyncio.gather(*puts)
        return
    for put in puts:
        await put

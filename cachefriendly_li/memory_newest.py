"""Change or drop the newest message of any memory, and touch nothing else of it.

Setting a memory to what it holds is not that: it makes archived messages active again, and takes
away what stands beside messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import BaseMemory
from llama_index.core.memory import Memory as StockMemory
from llama_index.core.memory.types import BaseChatStoreMemory
from llama_index.core.storage.chat_store.base_db import MessageStatus

from cachefriendly_li.memory_database import Memory
from cachefriendly_li.memory_queue import replace_active
from cachefriendly_li.memory_sync import wait_for

__all__ = ["achange_newest", "change_newest"]

_Test: TypeAlias = Callable[[Sequence[ChatMessage]], bool]


def change_newest(memory: BaseMemory, message: ChatMessage | None, wanted: _Test) -> bool:
    """Put ``message``, or nothing, in the place of the newest one, if the held ones are ``wanted``.

    Returns whether it was done.
    """
    if isinstance(memory, StockMemory):
        return wait_for(achange_newest(memory, message, wanted))
    held = memory.get_all()
    if not wanted(held):
        return False
    if message is None and isinstance(memory, BaseChatStoreMemory):
        memory.chat_store.delete_last_message(memory.chat_store_key)
    else:
        memory.set(_changed(held, message))
    return True


async def achange_newest(memory: BaseMemory, message: ChatMessage | None, wanted: _Test) -> bool:
    if not isinstance(memory, StockMemory):
        held = await memory.aget_all()
        if not wanted(held):
            return False
        if message is None and isinstance(memory, BaseChatStoreMemory):
            await memory.chat_store.adelete_last_message(memory.chat_store_key)
        else:
            await memory.aset(_changed(held, message))
        return True
    held = await memory.aget_all(status=MessageStatus.ACTIVE)
    if not wanted(held):
        return False
    if not isinstance(memory, Memory):
        await replace_active(memory.sql_store, memory.session_id, _changed(held, message))
    else:
        await memory.areplace_newest(message)
    return True


def _changed(held: Sequence[ChatMessage], message: ChatMessage | None) -> list[ChatMessage]:
    return [*held[:-1], *([] if message is None else [message])]

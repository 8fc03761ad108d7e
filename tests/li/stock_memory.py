"""LlamaIndex's own `Memory` over a store of ours, where this version of it takes one."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest
from llama_index.core.memory import Memory

from cachefriendly_li import StateDiffDBChatStore


def stock_memory(**options: Any) -> Memory:
    if "chat_store" not in signature(Memory.from_defaults).parameters:
        pytest.skip("LlamaIndex's Memory takes no store here")
    return Memory.from_defaults(chat_store=StateDiffDBChatStore(), **options)

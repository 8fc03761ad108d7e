"""What of a memory no JSON can hold, found again by name in the process that had it."""

from __future__ import annotations

import operator
import uuid
import weakref
from dataclasses import dataclass, field
from typing import Any, Final

from llama_index.core.llms.llm import LLM
from llama_index.core.memory.memory import BaseMemoryBlock
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore

from cachefriendly_li.memory_tokens import Tokenizer

__all__ = ["LIVE_KEY", "Live"]

LIVE_KEY: Final = "live"
"""Where a stored memory names the `Live` it had."""


@dataclass(frozen=True, eq=False)
class Live:
    """The objects of a memory that do not go through JSON.

    LlamaIndex writes an agent's memory to JSON and reads it again before every further run of a
    `Context`, in one process. The copy finds these again by ``name`` as long as somebody holds
    them; in another process `use_llm` gives a memory new ones. They never change: of two memories
    restored from one JSON, neither finds what the other was given.
    """

    tokenizer: Tokenizer | None = None
    llm: LLM | None = None
    blocks: tuple[BaseMemoryBlock[Any], ...] = ()
    store: AsyncDBChatStore | None = None
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        _LIVE[self.name] = self

    @classmethod
    def named(cls, name: object) -> Live:
        """The one of this name, or an empty one."""
        known = _LIVE.get(name) if isinstance(name, str) else None
        return known or cls()

    def holding(
        self,
        tokenizer: Tokenizer | None,
        *,
        llm: LLM | None = None,
        blocks: tuple[BaseMemoryBlock[Any], ...] = (),
        store: AsyncDBChatStore | None = None,
    ) -> Live:
        """This one if it holds just these, else another one."""
        same = self.llm is llm and self.store is store and self.tokenizer == tokenizer
        alike = len(self.blocks) == len(blocks) and all(map(operator.is_, self.blocks, blocks))
        return self if same and alike else Live(tokenizer, llm, blocks, store)

    def __deepcopy__(self, memo: dict[int, Any]) -> Live:
        return self


_LIVE: weakref.WeakValueDictionary[str, Live] = weakref.WeakValueDictionary()

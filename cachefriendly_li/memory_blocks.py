"""The blocks of a `Memory`: given an LLM, handed what is flushed, told as JSON and found again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms.llm import LLM
from llama_index.core.memory import FactExtractionMemoryBlock, StaticMemoryBlock
from llama_index.core.memory.memory import BaseMemoryBlock
from llama_index.core.settings import Settings

from cachefriendly.errors import RequestError
from cachefriendly.messages import HANDLE_KEY

__all__ = ["dump_blocks", "give_llm", "hand_over", "load_blocks"]

_FACTS: Final = "facts"
_COMMON: Final = ("name", "description", "priority", "accept_short_term_memory")
_OF_FACTS: Final = (*_COMMON, _FACTS, "max_facts")


def give_llm(blocks: Iterable[BaseMemoryBlock[Any]], llm: LLM) -> None:
    """To those that ask one and have none."""
    for block in blocks:
        if _lacks_llm(block):
            block.llm = llm  # type: ignore[attr-defined]


async def hand_over(
    messages: Sequence[ChatMessage], blocks: Sequence[BaseMemoryBlock[Any]], session_id: str
) -> None:
    """Give flushed messages to the blocks; each gets copies, which blocks write into.

    Raises:
        RequestError: a block asks an LLM and has none; no block was given anything.
    """
    for block in blocks:
        if _lacks_llm(block):
            raise RequestError(f"memory block {block.name!r} has no llm; call memory.use_llm")
    puts = [
        block.aput(
            [_bare(message) for message in messages],
            from_short_term_memory=True,
            session_id=session_id,
        )
        for block in blocks
    ]
    await asyncio.gather(*puts)


def _lacks_llm(block: BaseMemoryBlock[Any]) -> bool:
    return "llm" in type(block).model_fields and getattr(block, "llm", None) is None


def _bare(message: ChatMessage) -> ChatMessage:
    """A copy without our handle, which a block would take for a part of the text."""
    twin = message.model_copy(deep=True)
    twin.additional_kwargs.pop(HANDLE_KEY, None)
    return twin


def dump_blocks(blocks: Sequence[BaseMemoryBlock[Any]]) -> list[dict[str, Any]]:
    """LlamaIndex's static and fact blocks with what they know; of others the name."""
    return [_dump_block(block) for block in blocks]


def _dump_block(block: BaseMemoryBlock[Any]) -> dict[str, Any]:
    if type(block) is StaticMemoryBlock:
        return {"static": block.model_dump(mode="json")}
    if isinstance(block, FactExtractionMemoryBlock):
        return {_FACTS: block.model_dump(mode="json", include=set(_OF_FACTS))}
    return {"name": block.name}


def load_blocks(
    data: Sequence[Mapping[str, Any]], live: Sequence[BaseMemoryBlock[Any]], llm: LLM | None
) -> list[BaseMemoryBlock[Any]]:
    """Inverse of `dump_blocks`; ``live`` are the blocks themselves, if they are still there.

    Raises:
        RequestError: a block is neither in the data nor among ``live``.
    """
    known = {block.name: block for block in live}
    return [_load_block(item, known, llm) for item in data]


def _load_block(
    item: Mapping[str, Any], live: Mapping[str, BaseMemoryBlock[Any]], llm: LLM | None
) -> BaseMemoryBlock[Any]:
    if "static" in item:
        return StaticMemoryBlock.model_validate(item["static"])
    if _FACTS in item:
        state = item[_FACTS]
        twin = live.get(state["name"])
        if twin is not None:
            return twin.model_copy(update={_FACTS: list(state[_FACTS])})
        writer = llm or Settings._llm
        if writer is None:
            # Without one the block still tells its facts; `Memory.use_llm` gives it one.
            return FactExtractionMemoryBlock.model_construct(**state, llm=None)
        return FactExtractionMemoryBlock(**state, llm=writer)
    if item["name"] not in live:
        raise RequestError(
            f"memory block {item['name']!r} holds objects that no JSON can; pass "
            "Memory.from_dict(data, memory_blocks=[...]) with it, or give the memory to run()"
        )
    return live[item["name"]]

"""The memory of an agent's run: where it comes from, and that it knows its LLM."""

from __future__ import annotations

import asyncio

from llama_index.core.llms.llm import LLM
from llama_index.core.workflow import Context, StartEvent

from cachefriendly_li.memory import default_memory

__all__ = ["recall_with", "remember_with"]


async def remember_with(llm: LLM, ctx: Context, ev: StartEvent) -> None:
    """Give a run its memory: the one it is given, else the context's, else ours.

    A memory that comes back from a stored context has lost its tokenizer; the LLM gives it one.
    """
    memory = ev.get("memory", default=None) or await ctx.store.get("memory", default=None)
    if memory is None:
        # The LLM is asked for its window, which may read files.
        memory = await asyncio.to_thread(default_memory, llm)
    elif hasattr(memory, "use_llm"):
        await asyncio.to_thread(memory.use_llm, llm)
    await ctx.store.set("memory", memory)


async def recall_with(llm: LLM, ctx: Context) -> None:
    """Before a step uses the memory: one that comes back from a stored context has lost its
    tokenizer and its LLM, and a run that is resumed begins with any of its steps.

    Waits for nothing else: results of tools are collected in the order in which their steps go on.
    """
    memory = await ctx.store.get("memory", default=None)
    if hasattr(memory, "use_llm"):
        memory.use_llm(llm)

"""Tools that take the agent's `Context`.

LlamaIndex finds that argument by its annotation, and a string (as ``from __future__ import
annotations`` makes of it) is no `Context` to it.
"""

from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

__all__ = ["confirm", "count", "look", "remember"]


async def count(ctx: Context) -> str:
    """Count in the state."""
    async with ctx.store.edit_state() as state:
        state["state"]["n"] += 1
    return "counted"


async def look(ctx: Context) -> str:
    """The tools of the turn's reasoning so far."""
    return " ".join(step.action for step in await ctx.store.get("current_reasoning"))


async def remember(ctx: Context, text: str) -> str:
    """Keep a text."""
    await ctx.store.set("text", text)
    return text


async def confirm(ctx: Context) -> str:
    """Ask a human."""
    event = await ctx.wait_for_event(
        HumanResponseEvent, waiter_event=InputRequiredEvent(prefix="Sure?")
    )
    return str(event.response)

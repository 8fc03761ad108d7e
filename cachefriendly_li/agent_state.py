"""The state of an agent as text around the newest message of a run, the same at every step.

The original edits the message object of the first step and trusts that memory hands out the same
object again. A memory that hands out copies would show the plain message from the second step on:
another prompt, from the middle of the conversation.
"""

from __future__ import annotations

from typing import Any, Final

from llama_index.core.agent.workflow.workflow_events import AgentInput
from llama_index.core.base.llms.types import ChatMessage, TextBlock
from llama_index.core.memory import BaseMemory
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.workflow import Context

__all__ = ["with_state_text"]

_TEXT_KEY: Final = "cachefriendly_state_text"
_DONE_KEY: Final = "formatted_input_with_state"


async def with_state_text(
    ctx: Context, prompt: str | BasePromptTemplate, ev: AgentInput
) -> AgentInput:
    """The input of a step as the first step of its run had it; the original does the rest."""
    state = await ctx.store.get("state", default=None)
    if not state or not ev.input:
        return ev
    if await ctx.store.get(_DONE_KEY, default=False):
        return _again(ev, await ctx.store.get(_TEXT_KEY, default=None))
    await ctx.store.set(_TEXT_KEY, None)
    memory: BaseMemory = await ctx.store.get("memory")
    held = await memory.aget_all()
    newest = _text_of(ev.input[-1])
    if newest is None or (held and held[-1] is ev.input[-1]):
        return ev  # the original edits the message that memory holds
    text = prompt.format(state=state, msg=newest)
    if held and hasattr(memory, "aedit_newest") and (plain := _text_of(held[-1])) is not None:
        await memory.aedit_newest(_with_text(held[-1], prompt.format(state=state, msg=plain)))
        shown = (await memory.aget())[-1]
    else:
        await ctx.store.set(_TEXT_KEY, [newest, text])
        shown = _with_text(ev.input[-1], text)
    await ctx.store.set(_DONE_KEY, True)
    return ev.model_copy(update={"input": [*ev.input[:-1], shown]})


def _again(ev: AgentInput, texts: Any) -> AgentInput:
    """A later step: memory has the newest user message without its state."""
    if not texts:
        return ev
    plain, shown = texts
    messages = list(ev.input)
    for index in range(len(messages) - 1, -1, -1):
        if _text_of(messages[index]) == plain:
            messages[index] = _with_text(messages[index], shown)
            break
    return ev.model_copy(update={"input": messages})


def _text_of(message: ChatMessage) -> str | None:
    """The text that the original puts the state around: that of the last text block."""
    texts = (block.text for block in reversed(message.blocks) if isinstance(block, TextBlock))
    return next(texts, None)


def _with_text(message: ChatMessage, text: str) -> ChatMessage:
    copy = message.model_copy(deep=True)
    for block in reversed(copy.blocks):
        if isinstance(block, TextBlock):
            block.text = text
            break
    return copy

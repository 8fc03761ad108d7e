"""The exact ids of an agent's replies, kept in its context: a process that goes on has them too.

Handles alone survive in the messages; what they stand for lives in one process. Each reply's record
is stored beside the rest of the context, as text, and taken back where its handle is new.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms.llm import LLM

from cachefriendly.engine.known_turns import KnownTurns
from cachefriendly.errors import CacheFriendlyError
from cachefriendly.messages import HANDLE_KEY
from cachefriendly_li.llm import CacheFriendlyLLM

if TYPE_CHECKING:
    from llama_index.core.agent.workflow.agent_context import AgentContext

__all__ = ["KEY", "give_turns", "take_turns"]

KEY: Final = "cachefriendly_turns"

log = logging.getLogger(__name__)


async def take_turns(
    known: KnownTurns, llm: LLM, context: AgentContext, messages: Iterable[ChatMessage]
) -> None:
    """Before a step: import what the context holds of a conversation that is new here."""
    stored: dict[str, str] = await context.store.get(KEY, default={})
    handles = [handle for handle in _handles(messages) if handle in stored]
    if not handles or not isinstance(llm, CacheFriendlyLLM):
        return
    take = known.take
    await asyncio.to_thread(
        lambda: take(llm.engine, handles, stored.values, namespace=llm.cache_namespace)
    )


async def give_turns(
    known: KnownTurns, llm: LLM, context: AgentContext, messages: Iterable[ChatMessage]
) -> None:
    """After a step: store its own turn, and those that led to it."""
    handles = _handles(messages)
    if not handles or not isinstance(llm, CacheFriendlyLLM):
        return
    stored: dict[str, str] = await context.store.get(KEY, default={})
    give = known.give
    try:
        new = await asyncio.to_thread(
            lambda: give(llm.engine, handles, stored, namespace=llm.cache_namespace)
        )
    except CacheFriendlyError as error:
        # Only the kind of error: its text may quote what the user wrote.
        log.debug("a turn could not be stored: %s", type(error).__name__)
        return
    if new:
        await context.store.set(KEY, {**stored, **new})


def _handles(messages: Iterable[ChatMessage]) -> list[str]:
    found = (message.additional_kwargs.get(HANDLE_KEY) for message in messages)
    return [handle for handle in found if isinstance(handle, str)]

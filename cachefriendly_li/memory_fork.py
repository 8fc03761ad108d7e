"""A summary as a fork of the live conversation: its messages once more, and one instruction.

The stock memory writes the history into one new message, which no cache has seen. Here system
messages, tools and history are those of the conversation's last call, whose keys are held, so that
only the instruction is new. The conversation stays held beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.llms.llm import LLM

from cachefriendly.messages import HANDLE_KEY, Message
from cachefriendly.request import ChatRequest
from cachefriendly_li.convert import message_from_llama_index, message_to_llama_index
from cachefriendly_li.llm import CacheFriendlyLLM

__all__ = ["INSTRUCTION", "SummaryCall", "fork_of"]

INSTRUCTION: Final = """\
Summarise our conversation up to here in a few sentences, for you to read later in its place. Keep \
names, numbers, what I want, what was found out and decided, and what is still open. Write the \
summary alone, and call no tool."""
"""What the model is asked in place of LlamaIndex's default prompt, which speaks of a copy."""


@dataclass(frozen=True, slots=True)
class SummaryCall:
    """Messages and keyword arguments of a call of `CacheFriendlyLLM.chat`."""

    messages: list[ChatMessage]
    options: dict[str, Any]


def fork_of(
    llm: LLM, history: Sequence[ChatMessage], count: int, instruction: str
) -> SummaryCall | None:
    """The call that goes on from the live conversation after its ``count`` oldest messages.

    None when its last call was not made by this engine, or not lately.
    """
    head = _head_of(llm, history)
    oldest = history[:count]
    if head is None:
        return None
    asked = ChatMessage(role=MessageRole.USER, content=instruction)
    options: dict[str, Any] = {
        "cache_namespace": head.namespace,
        # A call of its own beside the conversation: it says nothing of the session's next turn.
        "session_id": f"{head.session or ''} (summary)",
        "template_arguments": dict(head.template_arguments),
    }
    if head.tools:
        # Part of the prompt, so they stay; but none may be called.
        options |= {"tools": head.tools, "tool_choice": "none"}
    return SummaryCall([*_system(head.messages, oldest), *oldest, asked], options)


def _head_of(llm: LLM, messages: Sequence[ChatMessage]) -> ChatRequest | None:
    """How the newest call among these messages that the engine knows began."""
    if not isinstance(llm, CacheFriendlyLLM):
        return None
    for message in reversed(messages):
        handle = message.additional_kwargs.get(HANDLE_KEY)
        head = llm.engine.head_of(handle) if isinstance(handle, str) else None
        # A reply of another namespace may stand in the history; its system prompt stays there.
        if head is not None and head.namespace == llm.cache_namespace:
            return head
    return None


def _system(head: Sequence[Message], history: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The system messages of a call that stood before the history, which may begin with some."""
    known = [message_from_llama_index(message, i) for i, message in enumerate(history)]
    own = max(n for n in range(len(head) + 1) if list(head[len(head) - n :]) == known[:n])
    return [message_to_llama_index(message) for message in head[: len(head) - own]]

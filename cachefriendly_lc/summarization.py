"""`SummarizationMiddleware`: LangChain's, whose summary is a fork of the live conversation.

LangChain writes the history into one new message, which no cache has seen. Here the model is asked
over the messages themselves: system prompt, tools and history are those of the agent's last call,
whose keys are held, so that only the instruction is new. The conversation stays held beside it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage

from cachefriendly.errors import ContextOverflow
from cachefriendly.openai_forms import tool_to_openai
from cachefriendly_lc import compat
from cachefriendly_lc.chat_model import ChatCacheFriendly
from cachefriendly_lc.convert import message_to_langchain
from cachefriendly_lc.middleware_turn import handle_of
from cachefriendly_lc.scope import current_namespace

if TYPE_CHECKING:
    from cachefriendly.request import ChatRequest

__all__ = ["INSTRUCTION", "SummarizationMiddleware"]

log = logging.getLogger(__name__)

_ABOVE = "(the conversation above)"

INSTRUCTION = """\
Write a summary of our conversation up to here. It will take the place of these messages, so keep \
what the work needs to go on: what I want, what was decided and why, what was made or changed \
(with names and places), what is still to be done. Do not repeat what is done. Answer with the \
summary alone, and call no tool."""
"""What the model is asked in place of LangChain's default prompt, which speaks of a copy."""


class SummarizationMiddleware(compat.SummarizationMiddleware[Any, Any]):
    """Takes the arguments of LangChain's class of this name, and decides as it does.

    With another ``model`` than a `ChatCacheFriendly`, with a ``summarizer``, for a conversation
    whose last call was not made here, or when history and instruction do not fit the window, the
    summary is made as LangChain makes it. ``trim_tokens_to_summarize`` counts only then: a fork
    reads nothing again. A ``summary_prompt`` of your own is the instruction, with "(the
    conversation above)" for ``{messages}``.
    """

    def _create_summary(self, messages_to_summarize: list[AnyMessage]) -> str:
        asked = self._fork(messages_to_summarize)
        if asked is not None:
            messages, options = asked
            try:
                writer, config = compat.summary_writer(self), compat.summary_config()
                return str(writer.invoke(messages, config, **options).text).strip()
            except ContextOverflow:
                log.debug("no summary from the live conversation: it does not fit the window")
        return super()._create_summary(messages_to_summarize)

    async def _acreate_summary(self, messages_to_summarize: list[AnyMessage]) -> str:
        asked = self._fork(messages_to_summarize)
        if asked is not None:
            messages, options = asked
            try:
                writer, config = compat.summary_writer(self), compat.summary_config()
                reply = await writer.ainvoke(messages, config, **options)
                return str(reply.text).strip()
            except ContextOverflow:
                log.debug("no summary from the live conversation: it does not fit the window")
        return await super()._acreate_summary(messages_to_summarize)

    def _fork(
        self, messages: list[AnyMessage]
    ) -> tuple[list[BaseMessage], Mapping[str, Any]] | None:
        """The messages and options of a summary call that goes on from the live conversation."""
        writer = compat.summary_chat_model(self)
        head = _head_of(messages, writer) if isinstance(writer, ChatCacheFriendly) else None
        if head is None:
            return None
        prompt = self.summary_prompt
        if prompt == compat.DEFAULT_SUMMARY_PROMPT:
            text = INSTRUCTION
        else:
            text = prompt.format(messages=_ABOVE).rstrip()
        system = map(message_to_langchain, head.messages)
        return [*system, *messages, HumanMessage(text)], _options(head)


def _head_of(messages: list[AnyMessage], writer: ChatCacheFriendly) -> ChatRequest | None:
    """How the newest call in a history began that the writer's engine made in this namespace.

    A handle is a hint from outside: another tenant's must not bring its system prompt here.
    """
    namespace = current_namespace(writer.cache_namespace)
    handles = (handle_of([m]) for m in reversed(messages) if isinstance(m, AIMessage))
    heads = (writer.engine.head_of(handle) for handle in handles if handle is not None)
    return next((head for head in heads if head and head.namespace == namespace), None)


def _options(head: ChatRequest) -> dict[str, Any]:
    """What the prompt of an agent's call has beside its messages."""
    options: dict[str, Any] = {"template_arguments": dict(head.template_arguments)}
    if head.tools:
        # Part of the prompt, so they stay; but none may be called.
        tools = [tool_to_openai(tool) for tool in head.tools]
        options |= {"tools": tools, "tool_choice": "none"}
    return options

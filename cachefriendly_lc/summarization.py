"""`SummarizationMiddleware`: LangChain's, whose summary is a fork of the live conversation.

LangChain writes the history into one new message, which no cache has seen. Here the model is asked
over the messages themselves: system prompt, tools and history are those of the agent's last call,
whose keys are held, so that only the instruction is new. The conversation stays held beside it.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
)

from cachefriendly.errors import ContextOverflow, MissingExtra
from cachefriendly.events import Finished
from cachefriendly.messages import HANDLE_KEY
from cachefriendly.openai_forms import tool_to_openai
from cachefriendly_lc.chat_model import ChatCacheFriendly
from cachefriendly_lc.convert import message_to_langchain
from cachefriendly_lc.listener import listening

try:
    from langchain.agents import middleware as stock
    from langchain.agents.middleware import ModelRequest, ModelResponse, summarization
except ImportError as error:
    raise MissingExtra("langchain", "agents") from error

if TYPE_CHECKING:
    from cachefriendly.events import ChatEvent
    from cachefriendly.messages import Message
    from cachefriendly_lc.calls import PreparedCall

__all__ = ["INSTRUCTION", "SummarizationMiddleware"]

log = logging.getLogger(__name__)

_CALLS_KEPT = 1000
_ABOVE = "(the conversation above)"

INSTRUCTION = """\
Write a summary of our conversation up to here. It will take the place of these messages, so keep \
what the work needs to go on: what I want, what was decided and why, what was made or changed \
(with names and places), what is still to be done. Do not repeat what is done. Answer with the \
summary alone, and call no tool."""
"""What the model is asked in place of LangChain's default prompt, which speaks of a copy."""


@dataclass(frozen=True, slots=True)
class _Head:
    """What an agent's call consists of beside its conversation."""

    system: tuple[SystemMessage, ...]
    options: Mapping[str, Any]

    @classmethod
    def of(cls, call: PreparedCall) -> _Head:
        request = call.request
        system = takewhile(lambda message: message.role == "system", request.messages)
        options: dict[str, Any] = {"template_arguments": dict(request.template_arguments)}
        if request.tools:
            # Part of the prompt, so they stay; but none may be called.
            tools = [tool_to_openai(tool) for tool in request.tools]
            options |= {"tools": tools, "tool_choice": "none"}
        return cls(tuple(_system_message(message) for message in system), options)


class SummarizationMiddleware(stock.SummarizationMiddleware[Any, Any]):
    """Takes the arguments of LangChain's class of this name, and decides as it does.

    With another ``model`` than a `ChatCacheFriendly`, with a ``summarizer``, for a conversation
    whose last call was not made here, or when history and instruction do not fit the window, the
    summary is made as LangChain makes it. ``trim_tokens_to_summarize`` counts only then: a fork
    reads nothing again. A ``summary_prompt`` of your own is the instruction, with "(the
    conversation above)" for ``{messages}``.
    """

    def __init__(self, model: Any, **options: Any) -> None:
        super().__init__(model, **options)
        self._heads: OrderedDict[str, _Head] = OrderedDict()
        self._lock = threading.Lock()

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        with listening(_Ear(self._remember)):
            return handler(request)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        with listening(_Ear(self._remember)):
            return await handler(request)

    def _create_summary(self, messages_to_summarize: list[AnyMessage]) -> str:
        asked = self._fork(messages_to_summarize)
        if asked is not None:
            messages, options = asked
            try:
                return str(self._writer.invoke(messages, _config(), **options).text).strip()
            except ContextOverflow:
                log.debug("no summary from the live conversation: it does not fit the window")
        return super()._create_summary(messages_to_summarize)

    async def _acreate_summary(self, messages_to_summarize: list[AnyMessage]) -> str:
        asked = self._fork(messages_to_summarize)
        if asked is not None:
            messages, options = asked
            try:
                reply = await self._writer.ainvoke(messages, _config(), **options)
                return str(reply.text).strip()
            except ContextOverflow:
                log.debug("no summary from the live conversation: it does not fit the window")
        return await super()._acreate_summary(messages_to_summarize)

    @property
    def _writer(self) -> Any:
        """The model with LangChain's retries, where this version of it has them."""
        return getattr(self, "_summary_model", self.model)

    def _remember(self, handle: str, call: PreparedCall) -> None:
        with self._lock:
            self._heads[handle] = _Head.of(call)
            if len(self._heads) > _CALLS_KEPT:
                self._heads.popitem(last=False)

    def _fork(
        self, messages: list[AnyMessage]
    ) -> tuple[list[BaseMessage], Mapping[str, Any]] | None:
        """The messages and options of a summary call that goes on from the live conversation."""
        writer = getattr(self, "_summary_chat_model", self.model)
        if getattr(self, "summarizer", None) is not None:
            return None
        head = self._head_of(messages) if isinstance(writer, ChatCacheFriendly) else None
        if head is None:
            return None
        prompt = self.summary_prompt
        if prompt == summarization.DEFAULT_SUMMARY_PROMPT:
            text = INSTRUCTION
        else:
            text = prompt.format(messages=_ABOVE).rstrip()
        return [*head.system, *messages, HumanMessage(text)], head.options

    def _head_of(self, messages: list[AnyMessage]) -> _Head | None:
        """Of the newest call in a history that was made here."""
        replies = (message for message in reversed(messages) if isinstance(message, AIMessage))
        handles = (str(reply.response_metadata.get(HANDLE_KEY)) for reply in replies)
        with self._lock:
            return next((self._heads[h] for h in handles if h in self._heads), None)


class _Ear:
    """Remembers which call made which reply."""

    def __init__(self, remember: Callable[[str, PreparedCall], None]) -> None:
        self._remember = remember

    def asks(self, call: PreparedCall) -> PreparedCall:
        return call

    def hears(self, call: PreparedCall, event: ChatEvent) -> None:
        if isinstance(event, Finished) and event.result.message.handle is not None:
            self._remember(event.result.message.handle, call)


def _system_message(message: Message) -> SystemMessage:
    converted = message_to_langchain(message)
    assert isinstance(converted, SystemMessage)
    return converted


def _config() -> Any:
    """What marks a summary call in traces and streams."""
    made = getattr(summarization, "_summary_config", None)
    return made() if made else {"metadata": {"lc_source": "summarization"}, "tags": ["nostream"]}

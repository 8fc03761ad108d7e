"""One model call of an agent and the tool calls it led to: asked, started and prefilled."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from cachefriendly.errors import CacheFriendlyError
from cachefriendly.events import Finished, ToolCallReady
from cachefriendly.messages import HANDLE_KEY
from cachefriendly_lc.convert import messages_from_langchain

if TYPE_CHECKING:
    from cachefriendly.early_start import Started
    from cachefriendly.engine.call import Call
    from cachefriendly.events import ChatEvent, ChatResult
    from cachefriendly_lc.calls import PreparedCall
    from cachefriendly_lc.early_start import Starter

__all__ = ["Turn", "handle_of"]

log = logging.getLogger(__name__)

Before: TypeAlias = "Callable[[PreparedCall], PreparedCall]"


class Turn:
    """Listens to one model call; afterwards it knows what the next prompt will begin with.

    Other calls may be made inside the same model call (a middleware that asks a model which tools
    to offer, a failed attempt that is tried again): the reply's handle says which one counts.
    """

    def __init__(self, starter: Starter | None = None, before: Before | None = None) -> None:
        """``before``: what is done to a call before it is made."""
        self._starter = starter
        self._before = before
        self._heard: dict[str, tuple[PreparedCall, ChatResult]] = {}
        self.call: PreparedCall | None = None
        """The call that made the reply; None when it was made by no engine of ours."""
        self._reply: tuple[BaseMessage, ...] = ()
        self._results: dict[str, BaseMessage] = {}
        self._prefills: list[Call] = []
        self._lock = threading.Lock()

    # While the model is called

    def asks(self, call: PreparedCall) -> PreparedCall:
        return self._before(call) if self._before is not None else call

    def hears(self, call: PreparedCall, event: ChatEvent) -> None:
        if isinstance(event, ToolCallReady) and self._starter is not None:
            self._starter.start(event.call)
        elif isinstance(event, Finished):
            self._heard[event.result.message.handle or ""] = (call, event.result)

    # When its reply is there

    def closes(self, reply: Sequence[BaseMessage]) -> ChatResult | None:
        """The model node is about to return ``reply``; what the engine said of it, if it made it.

        Started tools that the reply does not ask for are cancelled.
        """
        asked = _tool_calls(reply)
        self.cancel_all_but(asked)
        call, result = self._heard.get(handle_of(reply) or "", (None, None))
        self._heard.clear()
        self.call, self._reply = call, tuple(reply)
        self._results = {
            message.tool_call_id: message for message in reply if isinstance(message, ToolMessage)
        }
        if call is not None and asked:
            self._prefill()
        return result

    def cancel_all_but(self, call_ids: Sequence[str] = ()) -> None:
        if self._starter is not None:
            self._starter.cancel_all_but(call_ids)

    # While tools run

    def claim(self, call_id: str) -> Started | None:
        return self._starter.claim(call_id) if self._starter is not None else None

    def returns(self, result: Any) -> None:
        """A tool's result is known: prefill up to the first call that is still open."""
        if not isinstance(result, ToolMessage) or self.call is None:
            return
        with self._lock:
            before = len(self._known())
            self._results[result.tool_call_id] = result
            if len(self._known()) > before:
                self._prefill()

    @property
    def open_calls(self) -> list[str]:
        """Ids of calls without a result, in their order."""
        return [call_id for call_id in _tool_calls(self._reply) if call_id not in self._results]

    @property
    def _runs_on(self) -> bool:
        """A result is still to be waited for."""
        finished = self._starter.finished if self._starter is not None else lambda call_id: False
        return not all(map(finished, self.open_calls))

    def _known(self) -> list[BaseMessage]:
        """Results that no open call precedes, in the order of their calls: LangGraph's order."""
        known = []
        for call_id in _tool_calls(self._reply):
            if call_id not in self._results:
                break
            known.append(self._results[call_id])
        return known

    def _prefill(self) -> None:
        """Forward what the next prompt begins with, whatever the running tools return.

        Nothing when no tool runs any more: the next call comes at once, and forwards it in one go.
        """
        call, known = self.call, self._known()
        if call is None or not call.engine.config.reuse or not self._runs_on:
            return
        if _invalid(self._reply):
            return  # LangGraph puts error messages behind invalid calls; their place is its own
        self._wait()  # two at once would both forward what neither finds held yet
        answered = [message for message in self._reply if not isinstance(message, ToolMessage)]
        try:
            told = messages_from_langchain([*answered, *known])
            request = replace(call.request, messages=(*call.request.messages, *told))
            awaiting = tuple(_tool_calls(self._reply)[len(known) :])
            self._prefills.append(call.engine.prefill(request, awaiting=awaiting))
        except CacheFriendlyError as error:
            # Only the kind of error: its text may quote what the user wrote.
            log.debug("no early prefill: %s", type(error).__name__)

    # When the next call is made

    def settle(self) -> None:
        """Wait for the prefills: the next call needs these tokens anyway."""
        with self._lock:
            self._wait()

    def _wait(self) -> None:
        while self._prefills:
            try:
                self._prefills.pop().result()
            except CacheFriendlyError as error:
                log.debug("an early prefill was lost: %s", type(error).__name__)

    async def asettle(self) -> None:
        with self._lock:
            prefills, self._prefills = self._prefills, []
        for prefill in prefills:
            try:
                await prefill.aresult()
            except CacheFriendlyError as error:
                log.debug("an early prefill was lost: %s", type(error).__name__)


def handle_of(reply: Sequence[BaseMessage]) -> str | None:
    """The handle of the assistant message in a reply."""
    for message in reply:
        if isinstance(message, AIMessage):
            handle = message.response_metadata.get(HANDLE_KEY)
            return handle if isinstance(handle, str) else None
    return None


def _tool_calls(reply: Sequence[BaseMessage]) -> list[str]:
    return [
        call["id"] or ""
        for message in reply
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    ]


def _invalid(reply: Sequence[BaseMessage]) -> bool:
    return any(isinstance(m, AIMessage) and m.invalid_tool_calls for m in reply)

"""`CacheFriendlyMiddleware`: tool results of an agent are prefilled while other tools still run."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.runnables.config import run_in_executor

from cachefriendly.errors import CacheFriendlyError, MissingExtra
from cachefriendly_lc.chat_model import ChatCacheFriendly
from cachefriendly_lc.scope import current_scope

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain.agents.middleware.types import ToolCallRequest
except ImportError as error:
    raise MissingExtra("langchain", "agents") from error

if TYPE_CHECKING:
    from cachefriendly.engine.call import Call
    from cachefriendly.engine.engine import Engine

__all__ = ["CacheFriendlyMiddleware"]

log = logging.getLogger(__name__)

_TURNS_KEPT = 1000
"""Threads whose last model call is remembered; one that ends leaves its entry behind."""


@dataclass(slots=True)
class _Turn:
    """What the last model call of a thread looked like, and what came after it."""

    system: SystemMessage | None
    tools: Sequence[Any]
    results: dict[str, ToolMessage] = field(default_factory=dict)
    prefills: list[Call] = field(default_factory=list)


class CacheFriendlyMiddleware(AgentMiddleware[Any, Any, Any]):
    """For ``create_agent(middleware=[...])``; ``model`` is the agent's, or its engine.

    When a tool result is known, the history up to it is forwarded in the background, while other
    tools still run and LangGraph writes its checkpoint. This never changes what the model answers:
    a prefill that turns out not to match the next prompt is work lost, nothing else.
    """

    def __init__(self, model: ChatCacheFriendly | Engine) -> None:
        super().__init__()
        self._model = (
            model if isinstance(model, ChatCacheFriendly) else ChatCacheFriendly(engine=model)
        )
        self._lock = threading.Lock()
        self._turns: OrderedDict[str | None, _Turn] = OrderedDict()

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        for prefill in self._finished_turn():
            _settled(prefill)
        self._start_turn(request)
        return handler(request)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        for prefill in self._finished_turn():
            await run_in_executor(None, _settled, prefill)
        self._start_turn(request)
        return await handler(request)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        result = handler(request)
        self._prefill(request, result)
        return result

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        result = await handler(request)
        await run_in_executor(None, self._prefill, request, result)
        return result

    def _finished_turn(self) -> list[Call]:
        with self._lock:
            turn = self._turns.pop(current_scope().session, None)
        return turn.prefills if turn else []

    def _start_turn(self, request: ModelRequest[Any]) -> None:
        with self._lock:
            self._turns[current_scope().session] = _Turn(request.system_message, request.tools)
            if len(self._turns) > _TURNS_KEPT:
                self._turns.popitem(last=False)

    def _prefill(self, request: ToolCallRequest, result: Any) -> None:
        """Start forwarding the history up to the last result that no open call precedes."""
        if not isinstance(result, ToolMessage):
            return
        with self._lock:
            turn = self._turns.get(current_scope().session)
            if turn is None:
                return
            turn.results[result.tool_call_id] = result
            history = _history(request.state, turn)
        if not history or history[-1] is not result:
            return
        try:
            call = self._model.prefill(history, tools=turn.tools)
        except CacheFriendlyError as error:
            # Only the kind of error: its text may quote what the user wrote.
            log.debug("no early prefill: %s", type(error).__name__)
        else:
            turn.prefills.append(call)


def _history(state: Any, turn: _Turn) -> list[BaseMessage]:
    """System prompt, messages, and the results known so far in the order of their calls."""
    messages: list[BaseMessage] = list(state["messages"] if isinstance(state, dict) else [])
    asked = messages[-1] if messages else None
    if not isinstance(asked, AIMessage):
        return []
    for call in asked.tool_calls:
        result = turn.results.get(call["id"] or "")
        if result is None:
            break
        messages.append(result)
    return messages if turn.system is None else [turn.system, *messages]


def _settled(prefill: Call) -> None:
    """Wait for it: the next call needs these tokens anyway."""
    try:
        prefill.result()
    except CacheFriendlyError as error:
        log.debug("an early prefill was lost: %s", type(error).__name__)

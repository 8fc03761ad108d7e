"""`CacheFriendlyMiddleware`: an agent's tools start early, and their results are prefilled."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables.config import ensure_config, run_in_executor
from langchain_core.tools import BaseTool

from cachefriendly.errors import MissingExtra
from cachefriendly_lc.chat_model import ChatCacheFriendly
from cachefriendly_lc.listener import listening

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain.agents.middleware.types import ToolCallRequest
except ImportError as error:
    raise MissingExtra("langchain", "agents") from error

from cachefriendly_lc.early_objections import objections
from cachefriendly_lc.early_start import LoopStarter, StandIn, Starter, ThreadStarter
from cachefriendly_lc.early_tools import EarlyTools
from cachefriendly_lc.middleware_turn import Turn

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine

__all__ = ["CacheFriendlyMiddleware"]

log = logging.getLogger(__name__)

_TURNS_KEPT = 1000
"""Model calls whose tools are awaited; an agent that ends without them leaves its entry behind."""


class CacheFriendlyMiddleware(AgentMiddleware[Any, Any, Any]):
    """For ``create_agent(middleware=[...])``; ``model`` is the agent's, or its engine.

    While tools run, the certain part of the next prompt is forwarded in the background, and each
    result as soon as it is known. This never changes what the model answers: a prefill that turns
    out not to match the next prompt is work lost, nothing else.

    Args:
        early_tools: tools, or names of tools, that may start the moment their arguments are
            written, while the model still writes. A run that started early is the run: its result
            is what the agent gets. Name a tool only if running it for nothing does no harm: the
            reply may fail, and then the call was never made. Tools with injected arguments never
            start early, and none does while a middleware or an interrupt of the agent could still
            refuse or change the call (``docs/early-tools.md``).

    Raises:
        ConfigError: an entry of ``early_tools`` is no tool, or one with injected arguments.
    """

    def __init__(
        self,
        model: ChatCacheFriendly | Engine,
        *,
        early_tools: Iterable[str | BaseTool] = (),
    ) -> None:
        super().__init__()
        self._model = (
            model if isinstance(model, ChatCacheFriendly) else ChatCacheFriendly(engine=model)
        )
        self._early = EarlyTools(early_tools)
        self._objected: set[str] = set()
        self._lock = threading.Lock()
        self._turns: OrderedDict[str, Turn] = OrderedDict()

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any]:
        if (before := self._turn_of(request.messages)) is not None:
            before.settle()
        with self._turn(request, ThreadStarter) as turn:
            response = handler(request)
            turn.closes(response.result)
        self._keep(turn, response.result)
        return response

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        if (before := self._turn_of(request.messages)) is not None:
            await before.asettle()
        with self._turn(request, LoopStarter) as turn:
            response = await handler(request)
            await run_in_executor(None, turn.closes, response.result)
        self._keep(turn, response.result)
        return response

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        turn = self._turn_of(_messages(request))
        result = handler(_with_stand_in(request, turn))
        if turn is not None:
            turn.returns(result)
        return result

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        turn = self._turn_of(_messages(request))
        result = await handler(_with_stand_in(request, turn))
        if turn is not None:
            await run_in_executor(None, turn.returns, result)
        return result

    @contextmanager
    def _turn(self, request: ModelRequest[Any], starter: type[Starter]) -> Iterator[Turn]:
        """A turn that listens inside the block; what it started is cancelled if that fails."""
        turn = Turn(self._starter(request, starter))
        try:
            with listening(turn):
                yield turn
        except BaseException:
            turn.cancel_all_but()
            raise

    def _starter(self, request: ModelRequest[Any], kind: type[Starter]) -> Starter | None:
        if not self._early:
            return None
        config = ensure_config()
        if against := objections(config, self):
            self._tell(against)
            return None
        tools = self._early.among(request.tools)
        return kind(tools, config) if tools else None

    def _tell(self, against: Sequence[str]) -> None:
        text = "; ".join(against)
        if text not in self._objected:
            self._objected.add(text)
            log.info("no tool starts early: %s", text)

    # The turn of a reply is found by the reply's own id, which no other model call has.

    def _keep(self, turn: Turn, reply: Sequence[BaseMessage]) -> None:
        name = _name(reply)
        if name is None:
            turn.cancel_all_but()
            return
        with self._lock:
            self._turns[name] = turn
            old = self._turns.popitem(last=False)[1] if len(self._turns) > _TURNS_KEPT else None
        if old is not None:
            old.cancel_all_but()

    def _turn_of(self, messages: Sequence[BaseMessage]) -> Turn | None:
        with self._lock:
            return self._turns.get(_name(messages) or "")


def _name(messages: Sequence[BaseMessage]) -> str | None:
    """The id of the newest assistant message."""
    newest = (m.id for m in reversed(messages) if isinstance(m, AIMessage))
    return next(newest, None)


def _messages(request: ToolCallRequest) -> Sequence[BaseMessage]:
    state = request.state
    messages: Sequence[BaseMessage] = state.get("messages", ()) if isinstance(state, dict) else ()
    return messages


def _with_stand_in(request: ToolCallRequest, turn: Turn | None) -> ToolCallRequest:
    """The request as the tool node shall see it: with the run that was started, if there is one."""
    started = turn.claim(request.tool_call["id"] or "") if turn is not None else None
    if started is None or request.tool is None:
        return request
    return request.override(tool=StandIn(request.tool, started))

"""`CacheFriendlyMiddleware`: early tools, prefilled results, stored turns, and a prefix guard."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast, get_args

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.runnables.config import ensure_config, run_in_executor
from langchain_core.tools import BaseTool

from cachefriendly.bounded import BoundedMap
from cachefriendly.engine.known_turns import KnownTurns
from cachefriendly.errors import ConfigError, MissingExtra
from cachefriendly_lc.chat_model import ChatCacheFriendly
from cachefriendly_lc.listener import listening

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain.agents.middleware.types import ExtendedModelResponse, ToolCallRequest
    from langgraph.types import Command
except ImportError as error:
    raise MissingExtra("langchain", "agents") from error

from cachefriendly_lc.early_objections import objections
from cachefriendly_lc.early_start import LoopStarter, StandIn, Starter, ThreadStarter
from cachefriendly_lc.early_tools import EarlyTools
from cachefriendly_lc.guard import Finding, PrefixGuard
from cachefriendly_lc.guard_layout import Layout, StableLayout
from cachefriendly_lc.middleware_state import LAYOUT, TURNS, CacheFriendlyState
from cachefriendly_lc.middleware_turn import Turn

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine
    from cachefriendly.events import ChatResult
    from cachefriendly_lc.calls import PreparedCall

__all__ = ["CacheFriendlyMiddleware"]

log = logging.getLogger(__name__)

_TURNS_KEPT = 1000
"""Model calls whose tools are awaited; an agent that ends without them leaves its entry behind."""


class CacheFriendlyMiddleware(AgentMiddleware[Any, Any, Any]):
    """For ``create_agent(middleware=[...])``; ``model`` is the agent's, or its engine.

    While tools run, the certain part of the next prompt is forwarded in the background, and the
    results that are known. With a checkpointer the ids of every reply are stored with the thread,
    so that another process goes on exactly. `findings` says what made a call lose tokens that were
    held. None of this changes what the model answers.

    Put it last: middlewares further down the list act after it.

    Args:
        early_tools: tools, or names of tools, that may start the moment their arguments are
            written, while the model still writes. A run that started early is the run: its result
            is what the agent gets. Name a tool only if running it for nothing does no harm: the
            reply may fail, and then the call was never made. Tools with injected arguments never
            start early, and none does while a middleware or an interrupt of the agent could still
            refuse or change the call (``docs/agents.md``).
        layout: ``"stock"`` leaves the prompt as it is. ``"stable"`` keeps a thread's first system
            message and its first tools; what changes in the one and is added to the others is said
            before the newest user message: another prompt, whose start stays held.

    Raises:
        ConfigError: an entry of ``early_tools`` is no tool, or one with injected arguments; the
            layout is unknown.
    """

    state_schema = CacheFriendlyState

    def __init__(
        self,
        model: ChatCacheFriendly | Engine,
        *,
        early_tools: Iterable[str | BaseTool] = (),
        layout: Layout = "stock",
    ) -> None:
        super().__init__()
        self._model = (
            model if isinstance(model, ChatCacheFriendly) else ChatCacheFriendly(engine=model)
        )
        if layout not in get_args(Layout):
            raise ConfigError(f"layout={layout!r} is unknown; use 'stock' or 'stable'")
        self._layout = layout
        self._early = EarlyTools(early_tools)
        self._known = KnownTurns()
        self._guard = PrefixGuard()
        self._told: set[str] = set()
        self._turns: BoundedMap[str, Turn] = BoundedMap(_TURNS_KEPT)

    def findings(self) -> tuple[Finding, ...]:
        """Why calls of this agent lost tokens that were held, oldest first, the last 1,000."""
        return self._guard.findings()

    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], ModelResponse[Any]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        if (before := self._turn_of(request.messages, over=True)) is not None:
            before.settle()
        request, layout = self._arranged(request)
        with self._turn(request, ThreadStarter, layout) as turn:
            response = handler(request)
            update = self._closed(turn, request, response)
        return _with_update(response, {**_changed(request, layout), **update})

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        if (before := self._turn_of(request.messages, over=True)) is not None:
            await before.asettle()
        request, layout = self._arranged(request)
        with self._turn(request, LoopStarter, layout) as turn:
            response = await handler(request)
            update = await run_in_executor(None, self._closed, turn, request, response)
        return _with_update(response, {**_changed(request, layout), **update})

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
    def _turn(
        self,
        request: ModelRequest[Any],
        starter: type[Starter],
        layout: StableLayout | None,
    ) -> Iterator[Turn]:
        """A turn that listens inside the block; what it started is cancelled if that fails."""
        stored = _state(request).get(TURNS) or {}

        def take(call: PreparedCall) -> PreparedCall:
            handles = [handle for handle in _handles(call) if handle in stored]
            namespace = call.request.namespace
            self._known.take(call.engine, handles, stored.values, namespace=namespace)
            return call if layout is None else replace(call, request=layout.asked(call.request))

        turn = Turn(self._starter(request, starter), take)
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
            self._tell("no tool starts early: " + "; ".join(against))
            return None
        tools = self._early.among(request.tools)
        return kind(tools, config) if tools else None

    def _arranged(
        self, request: ModelRequest[Any]
    ) -> tuple[ModelRequest[Any], StableLayout | None]:
        """The request in this layout, and what the thread has to remember of it."""
        if self._layout == "stock":
            return request, None
        known = StableLayout.from_state(_state(request).get(LAYOUT) or {})
        system, layout = known.follow(request.system_message, request.tools)
        return request.override(system_message=system), layout

    def _closed(
        self, turn: Turn, request: ModelRequest[Any], response: ModelResponse[Any]
    ) -> dict[str, Any]:
        """The model call is over; what the state has to remember of it."""
        result = turn.closes(response.result)
        self._keep(turn, response.result)
        call = turn.call
        if call is None or result is None:
            return {}
        self._guard.looks_at(call, result)
        if self._layout == "stable" and not _begins_with(call, request.system_message):
            self._tell(
                "layout='stable': the system message was changed behind this middleware; put "
                "CacheFriendlyMiddleware last in the list"
            )
        if call.request.session is None:
            return {}  # no thread, nothing to go on with elsewhere
        turns = self._turns_of(call, result, _state(request).get(TURNS) or {})
        return {TURNS: turns} if turns else {}

    def _turns_of(
        self, call: PreparedCall, result: ChatResult, stored: Mapping[str, str]
    ) -> dict[str, str]:
        """A call's own turn, and those that led to it and are not stored.

        Earlier replies may come from elsewhere, as when a thread begins with another's messages.
        """
        reply = result.message.handle
        handles = (*_handles(call), *((reply,) if reply else ()))
        return self._known.give(call.engine, handles, stored, namespace=call.request.namespace)

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            log.info("%s", text)

    # The turn of a reply is found by the reply's own id, which no other model call has.

    def _keep(self, turn: Turn, reply: Sequence[BaseMessage]) -> None:
        name = _name(reply)
        if name is None or not turn.open_calls:
            turn.cancel_all_but()
            return
        if (old := self._turns.put(name, turn)) is not None:
            old.cancel_all_but()

    def _turn_of(self, messages: Sequence[BaseMessage], *, over: bool = False) -> Turn | None:
        """The turn that the newest reply belongs to. ``over``: its tools have had their time."""
        name = _name(messages) or ""
        turn = self._turns.pop(name) if over else self._turns.get(name)
        if turn is not None and over:
            turn.cancel_all_but()
        return turn


def _state(request: ModelRequest[Any]) -> dict[str, Any]:
    """With the fields of middlewares, which LangChain's type of it does not have."""
    return cast("dict[str, Any]", request.state)


def _changed(request: ModelRequest[Any], layout: StableLayout | None) -> dict[str, Any]:
    """What the state has to remember of a layout, when it does not already."""
    if layout is None or layout.to_state() == _state(request).get(LAYOUT):
        return {}
    return {LAYOUT: layout.to_state()}


def _with_update(
    response: ModelResponse[Any], update: dict[str, Any]
) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
    return ExtendedModelResponse(response, Command(update=update)) if update else response


def _handles(call: PreparedCall) -> list[str]:
    return [message.handle for message in call.request.messages if message.handle]


def _begins_with(call: PreparedCall, system: SystemMessage | None) -> bool:
    """Whether the engine was asked with this system message."""
    first = call.request.messages[0]
    return (first.content if first.role == "system" else None) == (system and system.text)


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

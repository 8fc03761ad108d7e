"""One step of an agent: what the model was asked, what it started, and what comes back.

While the reply is written, calls of tools that may start early are run the moment they are whole.
While tools run, the next prompt is forwarded as far as it is certain.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from llama_index.core.agent.workflow.workflow_events import (
    AgentInput,
    AgentOutput,
    AgentStream,
    ToolCallResult,
)
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms.llm import LLM, ToolSelection
from llama_index.core.tools import AsyncBaseTool

from cachefriendly.errors import CacheFriendlyError
from cachefriendly.messages import ToolCall
from cachefriendly_li.early_tasks import EarlyTasks, StandIn
from cachefriendly_li.llm import CacheFriendlyLLM

if TYPE_CHECKING:
    from llama_index.core.agent.workflow.agent_context import AgentContext

__all__ = ["FollowedContext", "Turn", "call_of"]

log = logging.getLogger(__name__)


class Turn:
    """Follows one step of an agent, from what the model is asked to its tools' last result.

    Args:
        tools: what the model is offered.
        whole_calls: finds the calls of a reply so far whose arguments are written.
        early: starts tools while the reply is written; None where none may start.
        offers_tools: the template is given the tools, and their results are tool messages. If
            not, the agent writes both into the conversation itself, and nothing is prefilled.
        claimed: whether somebody asks for what is started and forwarded.
    """

    def __init__(
        self,
        llm: LLM,
        tools: Sequence[AsyncBaseTool],
        *,
        whole_calls: Callable[[AgentStream], Iterable[ToolCall]] = lambda event: (),
        early: EarlyTasks | None = None,
        offers_tools: bool = True,
        claimed: bool = True,
    ) -> None:
        self.llm, self.tools, self.offers_tools = llm, tools, offers_tools
        self.asked: list[ChatMessage] = []
        self.reply: ChatMessage | None = None
        self._whole_calls = whole_calls
        self._early = early
        self._prefills = claimed and offers_tools and isinstance(llm, CacheFriendlyLLM)
        self._calls: dict[str, ToolCall] = {}
        self._results: dict[str, ChatMessage] = {}
        self._behind: asyncio.Task[None] | None = None
        self._waiting = False

    # While the model is called

    def sees(self, event: Any) -> None:
        """An event of the step, before it is sent."""
        if isinstance(event, AgentInput):
            self.asked = list(event.input)
        elif isinstance(event, AgentStream) and self._early is not None:
            for call in self._whole_calls(event):
                self._early.start(call)

    def closes(self, output: AgentOutput) -> None:
        """The reply is there: what it does not ask for is cancelled."""
        calls = [call_of(selection) for selection in output.tool_calls]
        if self._early is not None:
            self._early.keep_only(calls)
        self.reply = output.response.model_copy(deep=True)
        self._calls = {call.id: call for call in calls}
        self._waiting = bool(calls) and self._prefills and not self._ends_here(calls)
        self._prefill_soon()

    def _ends_here(self, calls: Iterable[ToolCall]) -> bool:
        """Whether a result is the answer, or another agent goes on with it."""
        direct = {tool.metadata.name for tool in self.tools if tool.metadata.return_direct}
        return any(call.name in direct for call in calls)

    def cancel(self) -> None:
        """No result is waited for any more: stop what nobody claimed."""
        self._waiting = False
        if self._early is not None:
            self._early.cancel_all_but()

    def end(self) -> None:
        """The run is over: no further step needs what is being forwarded."""
        self.cancel()
        if self._behind is not None:
            self._behind.cancel()

    # While tools run

    def stand_in(self, tool: AsyncBaseTool, call: ToolCall) -> AsyncBaseTool:
        """The tool, or what gives the result of the run that was started for this call."""
        started = self._early.claim_call(call) if self._early is not None else None
        return tool if started is None else StandIn(tool, started)

    def returns(self, result: ToolCallResult) -> None:
        """A result is known; results stand in the next prompt in the order of these calls."""
        if result.tool_id in self._calls:
            self._results[result.tool_id] = _tool_message(result)
            self._prefill_soon()

    @property
    def _open(self) -> frozenset[str]:
        return frozenset(self._calls.keys() - self._results.keys())

    @property
    def _runs_on(self) -> bool:
        """Whether a result is still to be waited for."""
        early = self._early
        return any(early is None or not early.finished(name) for name in self._open)

    def _prefill_soon(self) -> None:
        if self._waiting and self._runs_on and (self._behind is None or self._behind.done()):
            self._behind = asyncio.create_task(self._prefill())

    async def _prefill(self) -> None:
        """Forward what the next prompt begins with, again when more of it became certain.

        Nothing when no tool runs any more: the next call comes at once and forwards it in one go.
        """
        known = -1
        while self._waiting and self._runs_on and len(self._results) > known:
            known = len(self._results)
            try:
                await self._forward()
            except CacheFriendlyError as error:
                # Only the kind of error: its text may quote what the user wrote.
                log.debug("no early prefill: %s", type(error).__name__)
                return

    async def _forward(self) -> None:
        llm, reply = self.llm, self.reply
        if isinstance(llm, CacheFriendlyLLM) and reply is not None:
            history = [*self.asked, reply, *self._results.values()]
            await llm.aprefill(history, tools=self.tools, awaiting=self._open)

    async def settle(self) -> None:
        """Wait for what is being forwarded: the next call needs these tokens anyway."""
        self.cancel()
        if self._behind is not None:
            await self._behind


class FollowedContext:
    """An agent's context whose events a turn sees before they are sent."""

    def __init__(self, context: AgentContext, turn: Turn) -> None:
        self._context = context
        self._turn = turn
        self.is_running = True  # a step is part of a run; asking the context itself is deprecated

    def write_event_to_stream(self, event: Any) -> None:
        self._turn.sees(event)
        self._context.write_event_to_stream(event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def call_of(selection: ToolSelection) -> ToolCall:
    return ToolCall(selection.tool_name, dict(selection.tool_kwargs), selection.tool_id)


def _tool_message(result: ToolCallResult) -> ChatMessage:
    """A result as LlamaIndex's `FunctionAgent` appends it."""
    return ChatMessage(
        role="tool",
        blocks=result.tool_output.blocks,
        additional_kwargs={"tool_call_id": result.tool_id},
    )

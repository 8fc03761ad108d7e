"""One run of an agent or a workflow of agents: its steps find it, and its end ends its work.

A run is a context variable that is set around `Workflow.run`: steps are tasks made from there.
Where a runtime makes them elsewhere, nothing starts early and nothing is prefilled, that is all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from llama_index.core.agent.workflow.workflow_events import ToolCall as ToolCallEvent
from llama_index.core.agent.workflow.workflow_events import ToolCallResult
from llama_index.core.tools import AsyncBaseTool
from workflows.handler import WorkflowHandler

from cachefriendly.messages import ToolCall
from cachefriendly_li.early_tasks import EarlyTasks
from cachefriendly_li.early_tools import fit_tools
from cachefriendly_li.early_turn import FollowedContext, Turn

if TYPE_CHECKING:
    from llama_index.core.agent.workflow.agent_context import AgentContext

    from cachefriendly_li.agent import LiveAgent

__all__ = ["AgentRun", "answering", "following", "running", "started_for", "turn_of"]

_MAX_ITERATIONS = 20
"""What LlamaIndex takes where its context says nothing."""


class AgentRun:
    """What one run has going: the newest step of its agent."""

    def __init__(self, workflow: Any) -> None:
        self._workflow = workflow
        # As many tools at once as the workflow's own step would run.
        self._room = asyncio.Semaphore(type(workflow).call_tool._step_config.num_workers)
        self._end: asyncio.Task[None] | None = None
        self.turn: Turn | None = None

    def is_of(self, agent: Any) -> bool:
        """Whether this run, and not one around it, asks that agent."""
        agents = getattr(self._workflow, "agents", {}).values()
        return self._workflow is agent or any(agent is other for other in agents)

    async def begin(
        self, agent: LiveAgent, context: AgentContext, tools: Sequence[AsyncBaseTool]
    ) -> Turn:
        """The next step; what the one before left unclaimed is cancelled."""
        if self.turn is not None:
            await self.turn.settle()
        fit = {} if await _is_last(context) else fit_tools(agent.early_tools, tools)
        early = EarlyTasks(fit, self._room) if fit else None
        self.turn = Turn(
            agent.llm,
            tools,
            whole_calls=agent.whole_calls,
            early=early,
            offers_tools=agent.offers_tools,
        )
        return self.turn

    def ends_with(self, handler: WorkflowHandler) -> None:
        self._end = asyncio.create_task(self._cancel_after(handler))

    async def _cancel_after(self, handler: WorkflowHandler) -> None:
        try:
            await handler.stop_event_result()
        except Exception:  # whoever awaits the handler gets it
            pass
        finally:
            if self.turn is not None:
                self.turn.end()


_RUN: ContextVar[AgentRun | None] = ContextVar("cachefriendly_agent_run", default=None)
_CALL: ContextVar[ToolCall | None] = ContextVar("cachefriendly_tool_call", default=None)


def running(workflow: Any, start: Callable[[], WorkflowHandler]) -> WorkflowHandler:
    """Start a run of that workflow; what it started is cancelled when it ends."""
    run = AgentRun(workflow)
    token = _RUN.set(run)
    try:
        handler = start()
    finally:
        _RUN.reset(token)
    run.ends_with(handler)
    return handler


def turn_of(agent: Any) -> Turn | None:
    """The newest step of this run, if the run is of that agent."""
    run = _RUN.get()
    return run.turn if run is not None and run.is_of(agent) else None


@asynccontextmanager
async def following(
    agent: LiveAgent, context: AgentContext, tools: Sequence[AsyncBaseTool]
) -> AsyncIterator[tuple[Any, Turn]]:
    """A step of an agent: the context to take it with, and its turn.

    Outside a run of ours the turn starts nothing: nobody there would claim it.
    """
    run = _RUN.get()
    if run is None or not run.is_of(agent):
        turn = Turn(agent.llm, tools, claimed=False)
        yield FollowedContext(context, turn), turn
        return
    turn = await run.begin(agent, context, tools)
    try:
        yield FollowedContext(context, turn), turn
    except BaseException:
        turn.cancel()
        raise


@contextmanager
def answering(event: ToolCallEvent) -> Iterator[Callable[[ToolCallResult], ToolCallResult]]:
    """Around the step that calls a tool; give it the result on its way out."""
    run = _RUN.get()
    token = _CALL.set(ToolCall(event.tool_name, dict(event.tool_kwargs), event.tool_id))

    def told(result: ToolCallResult) -> ToolCallResult:
        if run is not None and run.turn is not None:
            run.turn.returns(result)
        return result

    try:
        yield told
    finally:
        _CALL.reset(token)


def started_for(tool: AsyncBaseTool) -> AsyncBaseTool:
    """What to call instead of that tool: the run that was started for the call being answered."""
    run, call = _RUN.get(), _CALL.get()
    if run is None or run.turn is None or call is None:
        return tool
    return run.turn.stand_in(tool, call)


async def _is_last(context: AgentContext) -> bool:
    """Whether LlamaIndex ends the run after this step, whatever calls it makes."""
    done: int = await context.store.get("num_iterations", default=0)
    limit: int = await context.store.get("max_iterations", default=_MAX_ITERATIONS)
    return done + 1 >= limit

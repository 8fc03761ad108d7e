"""The steps of a run that an agent and a workflow of agents have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent
from llama_index.core.agent.workflow.workflow_events import (
    AgentInput,
    AgentOutput,
    AgentSetup,
    ToolCall,
    ToolCallResult,
)
from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.llms.llm import LLM
from llama_index.core.tools import AsyncBaseTool, ToolOutput
from llama_index.core.workflow import Context, StopEvent, step
from workflows.handler import WorkflowHandler

from cachefriendly_li.agent_context import drop_unfinished_steps
from cachefriendly_li.agent_fork import live_turn, with_forked_output
from cachefriendly_li.agent_memory import recall_with
from cachefriendly_li.agent_run import answering, running, started_for
from cachefriendly_li.agent_state import with_state_text

__all__ = ["LiveSteps"]


class LiveSteps:
    """Stands before one of LlamaIndex's two classes that run agents: both have these steps, and
    no base class has them. Each does what is ours and leaves the rest to the original.
    """

    if TYPE_CHECKING:
        state_prompt: Any  # a text or a template: the one class says so, the other a template

    def _memory_llm(self) -> LLM:
        """What the memory of a run counts with."""
        raise NotImplementedError

    def _agent_of(self, ev: AgentOutput) -> BaseWorkflowAgent:
        """Whose output it is."""
        raise NotImplementedError

    def _output_cls_for(self, agent: BaseWorkflowAgent) -> type[BaseModel] | None:
        raise NotImplementedError

    def run(self, *args: Any, **kwargs: Any) -> WorkflowHandler:
        original: Any = super()
        drop_unfinished_steps(self, (*args, *kwargs.values()))
        return running(self, lambda: original.run(*args, **kwargs))

    @step
    async def setup_agent(self, ctx: Context, ev: AgentInput) -> AgentSetup:
        original: Any = super()
        told = await with_state_text(ctx, self.state_prompt, ev)
        setup: AgentSetup = await original.setup_agent(ctx, told)
        return setup

    @step
    async def call_tool(self, ctx: Context, ev: ToolCall) -> ToolCallResult:
        original: Any = super()
        with answering(ev) as told:
            return told(await original.call_tool(ctx, ev))

    async def _call_tool(
        self, ctx: Context, tool: AsyncBaseTool, tool_input: dict[str, Any]
    ) -> ToolOutput:
        original: Any = super()
        output: ToolOutput = await original._call_tool(ctx, started_for(tool), tool_input)
        return output

    @step
    async def aggregate_tool_results(
        self, ctx: Context, ev: ToolCallResult
    ) -> AgentInput | StopEvent | None:
        original: Any = super()
        await recall_with(self._memory_llm(), ctx)
        done: AgentInput | StopEvent | None = await original.aggregate_tool_results(ctx, ev)
        return done

    @step
    async def parse_agent_output(
        self, ctx: Context, ev: AgentOutput
    ) -> StopEvent | AgentInput | ToolCall | None:
        original: Any = super()
        await recall_with(self._memory_llm(), ctx)
        agent = self._agent_of(ev)
        view = with_forked_output(self, live_turn(agent), self._output_cls_for(agent))
        parse = original.parse_agent_output.__func__
        done: StopEvent | AgentInput | None = await parse(view, ctx, ev)
        return done

"""`AgentWorkflow`: LlamaIndex's, whose agents each have a sequence of their own to return to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from llama_index.core.agent.workflow import AgentWorkflow as StockAgentWorkflow
from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent
from llama_index.core.agent.workflow.workflow_events import (
    AgentInput,
    AgentOutput,
    AgentSetup,
    ToolCall,
    ToolCallResult,
)
from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.llms.llm import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.settings import Settings
from llama_index.core.tools import AsyncBaseTool, BaseTool, ToolOutput
from llama_index.core.workflow import Context, StartEvent, StopEvent, step
from workflows.handler import WorkflowHandler

from cachefriendly_li.agent import FunctionAgent, LiveAgent
from cachefriendly_li.agent_context import drop_unfinished_steps
from cachefriendly_li.agent_run import answering, running, started_for
from cachefriendly_li.agent_side import SideLLM, View, live_turn, with_forked_output
from cachefriendly_li.agent_state import recall_with, remember_with, with_state_text
from cachefriendly_li.react_agent import ReActAgent

__all__ = ["AgentWorkflow"]


class AgentWorkflow(StockAgentWorkflow):
    """LlamaIndex's `AgentWorkflow` with the same arguments, for agents of this package.

    LlamaIndex's own class over our agents keeps their prompts as well; with this one its default
    memory survives `Context.to_dict`, and agents' ``early_tools`` start early.
    """

    def run(self, *args: Any, **kwargs: Any) -> WorkflowHandler:
        drop_unfinished_steps(self, (*args, *kwargs.values()))
        return running(self, lambda: super(AgentWorkflow, self).run(*args, **kwargs))

    async def _init_context(self, ctx: Context, ev: StartEvent) -> None:
        await remember_with(self.agents[self.root_agent].llm, ctx, ev)
        for agent in self.agents.values():
            if isinstance(agent, LiveAgent):
                await agent.forget_unfinished(ctx)
        await super()._init_context(ctx, ev)

    @step
    async def setup_agent(self, ctx: Context, ev: AgentInput) -> AgentSetup:
        setup: AgentSetup = await super().setup_agent(
            ctx, await with_state_text(ctx, self.state_prompt, ev)
        )
        return setup

    @step
    async def call_tool(self, ctx: Context, ev: ToolCall) -> ToolCallResult:
        with answering(ev) as told:
            return told(await super().call_tool(ctx, ev))

    async def _call_tool(
        self, ctx: Context, tool: AsyncBaseTool, tool_input: dict[str, Any]
    ) -> ToolOutput:
        return await super()._call_tool(ctx, started_for(tool), tool_input)

    @step
    async def aggregate_tool_results(
        self, ctx: Context, ev: ToolCallResult
    ) -> AgentInput | StopEvent | None:
        await recall_with(self.agents[self.root_agent].llm, ctx)
        done: AgentInput | StopEvent | None = await super().aggregate_tool_results(ctx, ev)
        return done

    @step
    async def parse_agent_output(
        self, ctx: Context, ev: AgentOutput
    ) -> StopEvent | AgentInput | ToolCall | None:
        await recall_with(self.agents[self.root_agent].llm, ctx)
        agent = self.agents[ev.current_agent_name]
        parse: Any = super().parse_agent_output
        view = with_forked_output(self, live_turn(agent), self._output_cls_for(agent))
        done: StopEvent | AgentInput | None = await parse.__func__(view, ctx, ev)
        return done

    def _output_cls_for(self, agent: BaseWorkflowAgent) -> type[BaseModel] | None:
        """What the workflow says, if it says anything, else what the agent says."""
        if self.structured_output_fn is not None or self.output_cls is not None:
            return self.output_cls
        return agent.output_cls

    async def _generate_early_stopping_response(
        self, ctx: Context, ev: AgentOutput, max_iterations: int
    ) -> StopEvent:
        agent = self.agents[ev.current_agent_name]
        if isinstance(agent, LiveAgent) and agent.layout == "stable":
            await agent.keep_finished(ctx)
        return await super()._generate_early_stopping_response(ctx, ev, max_iterations)

    async def _get_llm_response(
        self, ctx: Context, llm_input: list[ChatMessage], agent: BaseWorkflowAgent
    ) -> ChatResponse:
        turn = live_turn(agent)
        if turn is None:
            return await super()._get_llm_response(ctx, llm_input, agent)
        view: Any = View(agent, llm=SideLLM(turn))
        return await super()._get_llm_response(ctx, [*turn.asked, llm_input[-1]], view)

    @classmethod
    def from_tools_or_functions(  # noqa: PLR0913, PLR0917 - the signature is LlamaIndex's
        cls,
        tools_or_functions: list[BaseTool | Callable[..., Any]],
        llm: LLM | None = None,
        system_prompt: str | None = None,
        state_prompt: str | BasePromptTemplate | None = None,
        initial_state: dict[str, Any] | None = None,
        output_cls: type[BaseModel] | None = None,
        structured_output_fn: Callable[[list[ChatMessage]], dict[str, Any]] | None = None,
        timeout: float | None = None,
        verbose: bool = False,
    ) -> Self:
        """One agent with these tools; a `ReActAgent` if the LLM calls no tools."""
        llm = llm or Settings.llm
        kind = FunctionAgent if llm.metadata.is_function_calling_model else ReActAgent
        agent = kind(
            name="Agent",
            description="A single agent that uses the provided tools or functions.",
            tools=tools_or_functions,
            llm=llm,
            system_prompt=system_prompt,
        )
        return cls(
            agents=[agent],
            output_cls=output_cls,
            structured_output_fn=structured_output_fn,
            state_prompt=state_prompt,
            initial_state=initial_state,
            timeout=timeout,
            verbose=verbose,
        )

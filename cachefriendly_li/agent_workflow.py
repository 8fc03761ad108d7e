"""`AgentWorkflow`: LlamaIndex's, whose agents each have a sequence of their own to return to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from llama_index.core.agent.workflow import AgentWorkflow as StockAgentWorkflow
from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent
from llama_index.core.agent.workflow.workflow_events import AgentOutput
from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.llms.llm import LLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.settings import Settings
from llama_index.core.tools import BaseTool
from llama_index.core.workflow import Context, StartEvent, StopEvent

from cachefriendly_li.agent import FunctionAgent, LiveAgent
from cachefriendly_li.agent_fork import ForkLLM, View, live_turn
from cachefriendly_li.agent_memory import remember_with
from cachefriendly_li.agent_steps import LiveSteps
from cachefriendly_li.react_agent import ReActAgent

__all__ = ["AgentWorkflow"]


class AgentWorkflow(LiveSteps, StockAgentWorkflow):
    """LlamaIndex's `AgentWorkflow` with the same arguments, for agents of this package.

    LlamaIndex's own class over our agents keeps their prompts as well; with this one its default
    memory survives `Context.to_dict`, and agents' ``early_tools`` start early.
    """

    def _memory_llm(self) -> LLM:
        return self.agents[self.root_agent].llm

    def _agent_of(self, ev: AgentOutput) -> BaseWorkflowAgent:
        return self.agents[ev.current_agent_name]

    async def _init_context(self, ctx: Context, ev: StartEvent) -> None:
        await remember_with(self._memory_llm(), ctx, ev)
        for agent in self.agents.values():
            if isinstance(agent, LiveAgent):
                await agent.forget_unfinished(ctx)
        await super()._init_context(ctx, ev)

    def _output_cls_for(self, agent: BaseWorkflowAgent) -> type[BaseModel] | None:
        """What the workflow says, if it says anything, else what the agent says."""
        if self.structured_output_fn is not None or self.output_cls is not None:
            return self.output_cls
        return agent.output_cls

    async def _generate_early_stopping_response(
        self, ctx: Context, ev: AgentOutput, max_iterations: int
    ) -> StopEvent:
        agent = self._agent_of(ev)
        if isinstance(agent, LiveAgent) and agent.layout == "stable":
            await agent.keep_finished(ctx)
        return await super()._generate_early_stopping_response(ctx, ev, max_iterations)

    async def _get_llm_response(
        self, ctx: Context, llm_input: list[ChatMessage], agent: BaseWorkflowAgent
    ) -> ChatResponse:
        turn = live_turn(agent)
        if turn is None:
            return await super()._get_llm_response(ctx, llm_input, agent)
        view: Any = View(agent, llm=ForkLLM(turn))
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

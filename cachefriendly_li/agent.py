"""`FunctionAgent`: LlamaIndex's, remembering by state diffs, its tools started early."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

from llama_index.core.agent.workflow import FunctionAgent as StockFunctionAgent
from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent
from llama_index.core.agent.workflow.workflow_events import (
    AgentOutput,
    AgentStream,
    AgentWorkflowStartEvent,
)
from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.bridge.pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)
from llama_index.core.llms.llm import LLM
from llama_index.core.memory import BaseMemory
from llama_index.core.tools import AsyncBaseTool
from llama_index.core.workflow import Context, StopEvent

from cachefriendly.engine.known_turns import KnownTurns
from cachefriendly.messages import ToolCall
from cachefriendly_li.agent_fork import ForkLLM, live_turn
from cachefriendly_li.agent_memory import remember_with
from cachefriendly_li.agent_run import following
from cachefriendly_li.agent_steps import LiveSteps
from cachefriendly_li.agent_turns import give_turns, take_turns
from cachefriendly_li.arguments import chosen_llm, warn_ignored_by_agent
from cachefriendly_li.early_tools import check_early_tools, tool_names
from cachefriendly_li.early_turn import call_of

if TYPE_CHECKING:
    from llama_index.core.agent.workflow.agent_context import AgentContext

__all__ = ["FunctionAgent", "Layout", "LiveAgent"]

Layout: TypeAlias = Literal["stable", "stock"]


class LiveAgent(LiveSteps, BaseWorkflowAgent):
    """What our agents share, whatever form their calls have."""

    early_tools: list[str] = Field(
        default_factory=list,
        description="Tools that start the moment their arguments are written. Name one only if "
        "running it for nothing does no harm: the reply may fail, and then it was never called.",
    )
    layout: Layout = Field(
        default="stable",
        description="'stable': side questions (structured output, the last word when stopped) "
        "fork the live conversation. 'stock': they have LlamaIndex's own prompts.",
    )

    offers_tools: ClassVar[bool] = True

    _known: KnownTurns = PrivateAttr(default_factory=KnownTurns)

    @model_validator(mode="before")
    @classmethod
    def _name_what_is_ignored(cls, values: Any) -> Any:
        if isinstance(values, dict):
            chosen_llm(values.get("llm"), values)
            warn_ignored_by_agent(values, cls.model_fields, cls.__name__)
        return values

    @property
    def unfinished_key(self) -> str:
        """Where in the context the messages of a turn stand until it is finished."""
        raise NotImplementedError

    def _memory_llm(self) -> LLM:
        return self.llm

    def _agent_of(self, ev: AgentOutput) -> BaseWorkflowAgent:
        return self

    def _output_cls_for(self, agent: BaseWorkflowAgent) -> type[BaseModel] | None:
        return self.output_cls

    @field_validator("early_tools", mode="before")
    @classmethod
    def _names_of_tools(cls, allowed: Any) -> list[str]:
        return tool_names(allowed)

    @model_validator(mode="after")
    def _refuse_unfit_tools(self) -> Self:
        closed = self.tool_retriever is None
        check_early_tools(self.early_tools, self.tools or (), closed=closed)
        return self

    async def _init_context(self, ctx: Context, ev: AgentWorkflowStartEvent) -> None:
        await remember_with(self.llm, ctx, ev)
        await self.forget_unfinished(ctx)
        await super()._init_context(ctx, ev)

    async def forget_unfinished(self, ctx: Context) -> None:
        """A run that failed or was cancelled leaves half a turn behind, which nobody finishes."""
        for key in (self.unfinished_key, "current_tool_calls"):
            if await ctx.store.get(key, default=None):
                await ctx.store.set(key, [])

    async def keep_finished(self, ctx: Context) -> None:
        """The turn is stopped: its steps that have results become history, its last reply not."""
        messages: list[ChatMessage] = await ctx.store.get(self.unfinished_key, default=[])
        memory: BaseMemory = await ctx.store.get("memory")
        await memory.aput_messages(messages[:-1])
        await ctx.store.set(self.unfinished_key, [])

    async def take_step(
        self,
        ctx: AgentContext,
        llm_input: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],
        memory: BaseMemory,
    ) -> AgentOutput:
        await take_turns(self._known, self.llm, ctx, llm_input)
        async with following(self, ctx, tools) as (context, turn):
            output = await self._ask_llm(context, llm_input, tools, memory)
            turn.closes(output)
            await give_turns(self._known, self.llm, ctx, [*turn.asked, output.response])
        return output

    async def _ask_llm(
        self,
        ctx: Any,
        llm_input: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],
        memory: BaseMemory,
    ) -> AgentOutput:
        """The step of the original, which asks the LLM."""
        return await super().take_step(ctx, llm_input, tools, memory)  # type: ignore[safe-super]

    def whole_calls(self, event: AgentStream) -> list[ToolCall]:
        """The calls of a reply so far whose arguments are written."""
        return [call_of(selection) for selection in event.tool_calls]

    async def _generate_early_stopping_response(
        self, ctx: Context, max_iterations: int
    ) -> StopEvent:
        if self.layout == "stable":
            await self.keep_finished(ctx)
        return await super()._generate_early_stopping_response(ctx, max_iterations)

    async def _get_llm_response(
        self, ctx: Context, llm_input: list[ChatMessage], llm: LLM | None = None
    ) -> ChatResponse:
        """Asked when the run is stopped: here behind what the model has read already."""
        turn = live_turn(self)
        if turn is None or llm is not None:
            return await super()._get_llm_response(ctx, llm_input, llm)
        fork: Any = ForkLLM(turn)
        return await super()._get_llm_response(ctx, [*turn.asked, llm_input[-1]], fork)


class FunctionAgent(LiveAgent, StockFunctionAgent):
    """LlamaIndex's `FunctionAgent` with the same arguments, and ``early_tools``.

    Its default memory survives `Context.to_dict`, so a further ``run(ctx=ctx)`` remembers. Replies
    enter the conversation as they were generated, and each step prefills what is new. While tools
    run, what the next prompt begins with for certain is forwarded.

    Example:
        >>> agent = FunctionAgent(tools=[search], llm=llm, early_tools=["search"])
        >>> await agent.run("Who was Ada Lovelace?")
    """

    @property
    def unfinished_key(self) -> str:
        return self.scratchpad_key

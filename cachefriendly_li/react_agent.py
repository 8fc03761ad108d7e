"""`ReActAgent`: LlamaIndex's, with what the model wrote and what tools said kept as they were.

The original shows the model its own steps written anew (`{"a": 1}` comes back as `{'a': 1}`) and
makes one message of a whole turn at its end. Here a conversation only grows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from llama_index.core.agent.react.types import (
    ActionReasoningStep,
    BaseReasoningStep,
    ObservationReasoningStep,
    ResponseReasoningStep,
)
from llama_index.core.agent.workflow import ReActAgent as StockReActAgent
from llama_index.core.agent.workflow.workflow_events import (
    AgentOutput,
    AgentStream,
    ToolCallResult,
)
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock
from llama_index.core.memory import BaseMemory
from llama_index.core.tools import AsyncBaseTool
from llama_index.core.workflow import Context

from cachefriendly.messages import ToolCall
from cachefriendly_li.agent import LiveAgent
from cachefriendly_li.agent_run import following
from cachefriendly_li.agent_turns import give_turns, take_turns

if TYPE_CHECKING:
    from llama_index.core.agent.workflow.agent_context import AgentContext

    from cachefriendly_li.early_turn import Turn

__all__ = ["ReActAgent"]

_ANSWER: Final = "Answer:"


class ReActAgent(LiveAgent, StockReActAgent):
    """LlamaIndex's `ReActAgent` with the same arguments.

    With ``layout="stable"`` each step is stored as it was generated and each observation behind
    it, in the turn and in memory, so that a step prefills its observation and nothing else. With
    ``layout="stock"`` the prompts are LlamaIndex's own.

    ``early_tools`` start when the JSON of an action is whole, if the model writes on behind it.
    """

    offers_tools: ClassVar[bool] = False
    """Tools stand in the system message, and observations are user messages."""

    @property
    def unfinished_key(self) -> str:
        return "cachefriendly_reasoning"

    async def forget_unfinished(self, ctx: Context) -> None:
        await super().forget_unfinished(ctx)
        if await ctx.store.get(self.reasoning_key, default=None):
            await ctx.store.set(self.reasoning_key, [])

    async def keep_finished(self, ctx: Context) -> None:
        await super().keep_finished(ctx)
        await ctx.store.set(self.reasoning_key, [])

    async def take_step(
        self,
        ctx: AgentContext,
        llm_input: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],
        memory: BaseMemory,
    ) -> AgentOutput:
        await take_turns(self._known, self.llm, ctx, llm_input)
        async with following(self, ctx, tools) as (context, turn):
            watched = _Watched(context, turn, self)
            if self.layout == "stock":
                output = await super().take_step(watched, llm_input, tools, memory)
            else:
                output = await self._grow(watched, llm_input, tools, memory)
            turn.closes(output)
            await give_turns(self._known, self.llm, ctx, [*turn.asked, output.response])
        return output

    async def _grow(
        self,
        ctx: Any,
        llm_input: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],
        memory: BaseMemory,
    ) -> AgentOutput:
        """A step behind the messages of the turn so far, instead of behind reasoning steps."""
        said: list[ChatMessage] = await ctx.store.get(self.unfinished_key, default=[])
        steps: list[BaseReasoningStep] = await ctx.store.get(self.reasoning_key, default=[])
        history = [*_without_retry(llm_input, said), *said]
        await ctx.store.set(self.reasoning_key, [])
        try:
            output = await super().take_step(ctx, history, tools, memory)
        finally:
            new: list[BaseReasoningStep] = await ctx.store.get(self.reasoning_key, default=[])
            await ctx.store.set(self.reasoning_key, [*steps, *new])
        # A copy: the original cuts the thought out of the reply when the turn ends.
        replies = output.retry_messages or [output.response]
        copies = [message.model_copy(deep=True) for message in replies]
        await ctx.store.set(self.unfinished_key, [*said, *copies])
        return output

    async def handle_tool_call_results(
        self, ctx: Context, results: list[ToolCallResult], memory: BaseMemory
    ) -> None:
        await super().handle_tool_call_results(ctx, results, memory)
        if self.layout == "stock":
            return
        steps: list[BaseReasoningStep] = await ctx.store.get(self.reasoning_key, default=[])
        said: list[ChatMessage] = await ctx.store.get(self.unfinished_key, default=[])
        new = steps[_behind_last_action(steps) :]
        await ctx.store.set(self.unfinished_key, [*said, *map(self._message, new)])

    def _message(self, step: BaseReasoningStep) -> ChatMessage:
        observed = isinstance(step, ObservationReasoningStep)
        role = self.formatter.observation_role if observed else MessageRole.ASSISTANT
        return ChatMessage(role=role, content=step.get_content())

    async def finalize(self, ctx: Context, output: AgentOutput, memory: BaseMemory) -> AgentOutput:
        """Keep the turn's messages; also at a hand-off, so that the next agent knows them."""
        if self.layout == "stock":
            return await super().finalize(ctx, output, memory)
        said: list[ChatMessage] = await ctx.store.get(self.unfinished_key, default=[])
        steps: list[BaseReasoningStep] = await ctx.store.get(self.reasoning_key, default=[])
        await memory.aput_messages(said)
        await ctx.store.set(self.unfinished_key, [])
        await ctx.store.set(self.reasoning_key, [])
        if steps and isinstance(steps[-1], ResponseReasoningStep):
            _keep_answer(output.response)
        return output


class _Watched:
    """A followed context that looks for a whole action in the text as well."""

    def __init__(self, context: Any, turn: Turn, agent: ReActAgent) -> None:
        self._context, self._turn, self._agent = context, turn, agent

    def write_event_to_stream(self, event: Any) -> None:
        if isinstance(event, AgentStream) and "}" in event.delta:
            call = _whole_action(self._agent, event.response)
            if call is not None:
                self._turn.starts(call)
        self._context.write_event_to_stream(event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def _whole_action(agent: ReActAgent, text: str) -> ToolCall | None:
    """The action a reply makes so far, if its input is whole: strict JSON up to the end."""
    _, found, written = text.rpartition("Action Input:")
    try:
        arguments = json.loads(written[written.index("{") :]) if found else None
        parsed = agent.output_parser.parse(text, is_streaming=False)
    except ValueError:
        return None
    if not isinstance(parsed, ActionReasoningStep) or parsed.action_input != arguments:
        return None
    return ToolCall(parsed.action, parsed.action_input, id="action")


def _without_retry(llm_input: list[ChatMessage], said: list[ChatMessage]) -> list[ChatMessage]:
    """The history alone: LlamaIndex puts the user's message and a retry behind it once more."""
    if len(said) >= 2 and llm_input[-2:] == said[-2:]:
        return llm_input[:-3]
    return llm_input


def _behind_last_action(steps: Sequence[BaseReasoningStep]) -> int:
    actions = (n for n, step in enumerate(steps) if isinstance(step, ActionReasoningStep))
    return max(actions, default=-1) + 1


def _keep_answer(reply: ChatMessage) -> None:
    """What the user is told is the answer, without the thought before it."""
    for block in reply.blocks:
        if isinstance(block, TextBlock):
            _, found, answer = block.text.partition(_ANSWER)
            if found:
                block.text = answer.strip()
            return

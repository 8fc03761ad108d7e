"""`ReActAgent`: LlamaIndex's, with what the model wrote and what tools said kept as they were.

The original shows the model its own steps written anew (`{"a": 1}` comes back as `{'a': 1}`) and
makes one message of a whole turn at its end. Here a conversation only grows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar, Final

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

    async def _ask_llm(
        self,
        ctx: Any,
        llm_input: list[ChatMessage],
        tools: Sequence[AsyncBaseTool],
        memory: BaseMemory,
    ) -> AgentOutput:
        """Asks behind the messages of the turn so far, instead of behind reasoning steps."""
        if self.layout == "stock":
            return await super()._ask_llm(ctx, llm_input, tools, memory)
        said: list[ChatMessage] = await ctx.store.get(self.unfinished_key, default=[])
        steps: list[BaseReasoningStep] = await ctx.store.get(self.reasoning_key, default=[])
        history = [*_without_retry(llm_input, said), *said]
        await ctx.store.set(self.reasoning_key, [])
        try:
            output = await super()._ask_llm(ctx, history, tools, memory)
        finally:
            new: list[BaseReasoningStep] = await ctx.store.get(self.reasoning_key, default=[])
            await ctx.store.set(self.reasoning_key, [*steps, *new])
        # A copy: the original cuts the thought out of the reply when the turn ends.
        replies = output.retry_messages or [output.response]
        copies = [message.model_copy(deep=True) for message in replies]
        await ctx.store.set(self.unfinished_key, [*said, *copies])
        return output

    def whole_calls(self, event: AgentStream) -> list[ToolCall]:
        """The action, if its input is whole: strict JSON up to the end."""
        if "}" not in event.delta:
            return []
        _, found, written = event.response.rpartition("Action Input:")
        try:
            arguments = json.loads(written[written.index("{") :]) if found else None
            parsed = self.output_parser.parse(event.response, is_streaming=False)
        except ValueError:
            return []
        if not isinstance(parsed, ActionReasoningStep) or parsed.action_input != arguments:
            return []
        return [ToolCall(parsed.action, parsed.action_input, id="action")]

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

"""The two summarising classic memories on state diffs."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage, get_buffer_string
from langchain_core.runnables.config import run_in_executor

from cachefriendly_lc.history import SUMMARY_NAME
from cachefriendly_lc.memory_base import StateDiffMemory, leave_out, spoken, stock
from cachefriendly_lc.memory_tokens import TrimmedMemory

__all__ = ["ConversationSummaryBufferMemory", "ConversationSummaryMemory"]


class ConversationSummaryMemory(StateDiffMemory, stock.ConversationSummaryMemory):
    """`langchain_classic.memory.ConversationSummaryMemory`: a summary, renewed after every turn.

    The summary is this object's ``buffer``, the messages are in the history: `from_messages`
    makes the one from the other. The stock class does not renew it in ``asave_context``; here
    both forms do.
    """

    def save_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        turn = self._turn(inputs, outputs)
        self.chat_memory.add_messages(turn)
        self.buffer = self.predict_new_summary(spoken(turn), self.buffer)

    async def asave_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        turn = self._turn(inputs, outputs)
        await self.chat_memory.aadd_messages(turn)
        self.buffer = await self.apredict_new_summary(spoken(turn), self.buffer)

    async def aclear(self) -> None:
        await super().aclear()
        self.buffer = ""


class ConversationSummaryBufferMemory(TrimmedMemory, stock.ConversationSummaryBufferMemory):
    """`langchain_classic.memory.ConversationSummaryBufferMemory`: a summary and the newest turns.

    The summary is a diff of the history, put in the place of the messages it stands for in one
    step, so that a history in a file has it after a restart. With a history of another kind it
    lives in ``moving_summary_buffer`` only, as in the stock class.
    """

    def load_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {self.memory_key: self._shown(self.chat_memory.messages)}

    async def aload_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {self.memory_key: self._shown(await self.chat_memory.aget_messages())}

    def _shown(self, messages: list[BaseMessage]) -> str | list[BaseMessage]:
        shown = self._without_summary(messages)
        if self.moving_summary_buffer:
            summary = self.summary_message_cls(content=self.moving_summary_buffer)
            shown = [summary, *shown]
        if self.return_messages:
            return shown
        return get_buffer_string(
            spoken(shown), human_prefix=self.human_prefix, ai_prefix=self.ai_prefix
        )

    def _without_summary(self, messages: list[BaseMessage]) -> list[BaseMessage]:
        """The messages themselves; a summary before them becomes ``moving_summary_buffer``."""
        if not messages or not _is_summary(messages[0]):
            return list(messages)
        self.moving_summary_buffer = messages[0].text
        return messages[1:]

    def _kept(self) -> list[BaseMessage]:
        return self._without_summary(self.chat_memory.messages)

    def save_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        super().save_context(inputs, outputs)
        self.prune()

    async def asave_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        await super().asave_context(inputs, outputs)
        await self.aprune()

    def prune(self) -> None:
        """Summarise the oldest messages when the limit is exceeded."""
        oldest = self._overflow(self.llm.get_num_tokens_from_messages, self.max_token_limit)
        if oldest:
            known = self.moving_summary_buffer
            self._replace(oldest, self.predict_new_summary(spoken(oldest), known))

    async def aprune(self) -> None:
        """`prune` with an awaited model call."""
        oldest = await run_in_executor(
            None, self._overflow, self.llm.get_num_tokens_from_messages, self.max_token_limit
        )
        if oldest:
            known = self.moving_summary_buffer
            summary = await self.apredict_new_summary(spoken(oldest), known)
            await run_in_executor(None, self._replace, oldest, summary)

    def _replace(self, oldest: list[BaseMessage], summary: str) -> None:
        """Only once the summary is there: a model call that fails costs no message."""
        before = [message for message in self.chat_memory.messages[:1] if _is_summary(message)]
        if leave_out(self.chat_memory, [*before, *oldest], summary=summary):
            self.moving_summary_buffer = summary


def _is_summary(message: BaseMessage) -> bool:
    return isinstance(message, SystemMessage) and message.name == SUMMARY_NAME

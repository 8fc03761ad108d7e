"""What the classic memories share: a history of state diffs, and whole turns in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Self

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from pydantic import Field

from cachefriendly.errors import ConfigError, MissingExtra, RequestError
from cachefriendly_lc.history import StateDiffChatMessageHistory

try:
    from langchain_classic import memory as stock
    from langchain_classic.agents.format_scratchpad.tools import format_to_tool_messages
    from langchain_classic.agents.output_parsers.tools import ToolAgentAction
    from langchain_classic.memory.chat_memory import BaseChatMemory
except ImportError as error:
    raise MissingExtra("langchain-classic", "agents") from error

__all__ = ["StateDiffMemory", "leave_out", "newest_spoken", "spoken", "stock"]

_STEPS = "intermediate_steps"


class StateDiffMemory(BaseChatMemory):
    """A classic chat memory whose history is a log of state diffs.

    ``save_context`` takes texts as before, and messages: an `AIMessage` keeps its tool calls and
    its handle, a list keeps a whole turn with its tool results. An `AgentExecutor` hands over the
    two texts only; with ``return_intermediate_steps=True`` the messages between them are kept as
    well, so that the next prompt begins with everything this one held.

    Attributes:
        keep_tool_messages: keep those messages. Texts (``return_messages=False``) never show
            them, and no count of turns counts them. False is what the stock classes do.
    """

    chat_memory: BaseChatMessageHistory = Field(default_factory=StateDiffChatMessageHistory)
    keep_tool_messages: bool = True

    def save_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        self.chat_memory.add_messages(self._turn(inputs, outputs))

    async def asave_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        await self.chat_memory.aadd_messages(self._turn(inputs, outputs))

    def _turn(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> list[BaseMessage]:
        steps: list[BaseMessage] = []
        if self.keep_tool_messages and self.output_key != _STEPS and _STEPS in outputs:
            steps = _tool_messages(outputs[_STEPS])
            outputs = {key: value for key, value in outputs.items() if key != _STEPS}
        asked, answered = self._get_input_output(inputs, outputs)
        return [
            *_as_messages(asked, HumanMessage, "input"),
            *steps,
            *_as_messages(answered, AIMessage, "output"),
        ]

    def to_json_lines(self) -> str:
        """The memory's messages as JSON lines, one per diff."""
        if not isinstance(self.chat_memory, StateDiffChatMessageHistory):
            raise ConfigError(
                f"chat_memory is {type(self.chat_memory).__name__}; only a "
                "StateDiffChatMessageHistory exports its diffs"
            )
        return self.chat_memory.to_json_lines()

    @classmethod
    def from_json_lines(cls, text: str, **options: Any) -> Self:
        """Inverse of `to_json_lines`; ``options`` are those of the constructor."""
        return cls(chat_memory=StateDiffChatMessageHistory.from_json_lines(text), **options)


def leave_out(
    history: BaseChatMessageHistory, oldest: Sequence[BaseMessage], *, summary: str | None = None
) -> bool:
    """Take the oldest messages out of a history; one of diffs still knows them.

    False when they are not its oldest any more.
    """
    if isinstance(history, StateDiffChatMessageHistory):
        return history.leave_out(oldest, summary=summary)
    # As the stock classes do: it works where the history hands out its own list.
    del history.messages[: len(oldest)]
    return True


def spoken(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Without tool results and the calls that they answer: what was said to and by the user."""
    return [message for message, said in zip(messages, _said(messages), strict=True) if said]


def newest_spoken(messages: Sequence[BaseMessage], count: int) -> list[BaseMessage]:
    """The newest ``count`` spoken messages and the tool messages between them."""
    places = [index for index, said in enumerate(_said(messages)) if said]
    if count <= 0 or not places:
        return []
    return list(messages[places[max(0, len(places) - count)] :])


def _said(messages: Sequence[BaseMessage]) -> list[bool]:
    return [
        not isinstance(message, ToolMessage)
        and not (_calls(message) and isinstance(follower, ToolMessage))
        for message, follower in zip_longest(messages, messages[1:])
    ]


def _calls(message: BaseMessage) -> bool:
    return isinstance(message, AIMessage) and bool(message.tool_calls or message.invalid_tool_calls)


def _tool_messages(steps: Any) -> list[BaseMessage]:
    """As the agent showed them to the model; steps of agents that write calls as text are not."""
    return format_to_tool_messages([step for step in steps if isinstance(step[0], ToolAgentAction)])


def _as_messages(value: Any, kind: type[BaseMessage], what: str) -> Sequence[BaseMessage]:
    if isinstance(value, str):
        return [kind(content=value)]
    if isinstance(value, BaseMessage):
        return [value]
    if isinstance(value, list) and value and all(isinstance(m, BaseMessage) for m in value):
        return value
    raise RequestError(
        f"{what} of save_context is {type(value).__name__}; give a string, a message or a list "
        "of messages"
    )

"""What a history policy decides: which replies stay as they were generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cachefriendly.config import HistoryPolicy
from cachefriendly.messages import Message
from cachefriendly.prompt.disguise import Disguise
from cachefriendly.prompt.record import Record

__all__ = ["Policy", "PrintedReply", "policy_named"]


@dataclass(frozen=True, slots=True)
class PrintedReply:
    """A known reply and how the template prints it in history, still disguised.

    ``header`` stands where the call itself had its generation prompt. With ``open_start`` the
    reply may begin inside it.
    """

    message: Message
    record: Record
    header: str
    block: str
    open_start: bool
    disguise: Disguise

    def says_the_same(self) -> bool:
        """Whether nothing of what was generated is missing; spelling does not count.

        Templates print unparsed calls before the others or behind them, depending on the dialect.
        """
        shown = self.header + self.block if self.open_start else self.block
        said = [self.message.reasoning or "", self.message.content]
        calls = [call.name for call in self.message.tool_calls]
        raws = [call.raw for call in self.message.invalid_tool_calls]
        return any(_in_order(parts, shown) for parts in (said + raws + calls, said + calls + raws))

    def is_the_same(self) -> bool:
        """Whether header and reply are the text the call itself had, to the letter."""
        shown = self.disguise.reveal(self.header + self.block)
        return shown == self.record.generation_prompt + self.record.output_text


def _in_order(parts: Sequence[str], shown: str) -> bool:
    """Whether ``parts`` follow each other in ``shown``: one is never found inside another."""
    position = 0
    for part in map(str.strip, parts):
        start = shown.find(part, position)
        if start < 0:
            return False
        position = start + len(part)
    return True


class Policy(Protocol):
    """One `HistoryPolicy`.

    Attributes:
        restores: replies are rendered as they were generated, not as they came back: known ones
            from their record, reasoning in the text of others from its own field.
        restarts: the whole prompt of the previous call is kept, whatever the template says now.
        sorts_tools: equal tools in another order give the same text.
    """

    restores: bool
    restarts: bool
    sorts_tools: bool

    def keeps(self, printed: PrintedReply) -> bool:
        """Whether the recorded ids of a reply stand for what the template prints."""


class _Template:
    restores = True
    restarts = False
    sorts_tools = True

    def keeps(self, printed: PrintedReply) -> bool:
        return printed.says_the_same()


class _Exact:
    restores = False
    restarts = False
    sorts_tools = False

    def keeps(self, printed: PrintedReply) -> bool:
        return printed.is_the_same()


class _Append:
    restores = True
    restarts = True
    sorts_tools = True

    def keeps(self, printed: PrintedReply) -> bool:
        return True


_POLICIES: dict[HistoryPolicy, Policy] = {
    "template": _Template(),
    "exact": _Exact(),
    "append": _Append(),
}


def policy_named(name: HistoryPolicy) -> Policy:
    """The policy of that name (`EngineConfig.history` is checked where it is set)."""
    return _POLICIES[name]

"""An engine without a model: replies by script, calls that behave like those of `Engine.chat`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from cachefriendly.config import EngineConfig
from cachefriendly.engine.call import Call, Deadline
from cachefriendly.engine.channel import Channel, Submitted
from cachefriendly.errors import Cancelled, EngineClosed, RequestError
from cachefriendly.events import (
    CacheReport,
    ChatEvent,
    ChatResult,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallReady,
)
from cachefriendly.messages import Message, check_conversation
from cachefriendly.request import ChatRequest
from cachefriendly.tools.schema import check_tools

__all__ = ["SCRIPTED_REPORT", "ScriptedCall", "ScriptedEngine"]

SCRIPTED_REPORT = CacheReport(
    prompt_tokens=20, reused_tokens=12, prefilled_tokens=8, generated_tokens=5, forwarded_tokens=12
)
"""The report of every scripted call."""


class ScriptedCall(Call):
    """A real `Call` whose events are known beforehand."""

    def __init__(
        self,
        events: Sequence[ChatEvent],
        *,
        stall_at: int | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        self._playback = _Playback(events, stall_at)
        self._script = _Script()
        reply: Any = self._script
        super().__init__(Submitted(self._playback, self._playback.stop), reply, deadline=deadline)

    @property
    def finished(self) -> bool:
        """Its consumer has seen the whole reply."""
        return self._script.result is not None

    @property
    def cancelled(self) -> bool:
        return self._playback.stopped and not self.finished


class ScriptedEngine:
    """Answers with the given replies in order, the last one again and again.

    A text streams word by word; a `Message` its reasoning, its words and its calls. A call stalls
    before event ``stall_at`` until it is cancelled or its deadline passes. ``requests``,
    ``prefills`` and ``calls`` remember what was asked.
    """

    model_name = "scripted"

    def __init__(
        self, *replies: str | Message, stall_at: int | None = None, context_window: int = 2048
    ) -> None:
        self.replies = list(replies)
        self.stall_at = stall_at
        self.context_window = context_window
        self.config = EngineConfig()
        self.requests: list[ChatRequest] = []
        self.prefills: list[ChatRequest] = []
        self.calls: list[ScriptedCall] = []
        self._closed = False

    def chat(self, request: ChatRequest, *, timeout: float | None = None) -> ScriptedCall:
        """The next reply; refuses bad input and a closed engine as `Engine.chat` does."""
        self._check(request)
        if not self.replies:
            raise RequestError("the script holds no reply; give ScriptedEngine at least one")
        reply = self.replies[min(len(self.requests), len(self.replies) - 1)]
        self.requests.append(request)
        return self._call(_events(reply), timeout)

    def prefill(self, request: ChatRequest, *, awaiting: Collection[str] = ()) -> ScriptedCall:
        self._check(request)
        self.prefills.append(request)
        return self._call([_finished(Message("assistant", ""))], None)

    def head_of(self, handle: str) -> ChatRequest | None:
        """Of the newest request; the double does not know which reply was whose."""
        if not self.requests or handle == "":
            return None
        last = self.requests[-1]
        return replace(last, messages=tuple(m for m in last.messages if m.role == "system"))

    def export_turn(self, handle: str, *, namespace: str = "") -> str | None:
        """There are no ids to export."""
        return None

    def import_turns(self, texts: Iterable[str], *, namespace: str = "") -> int:
        return 0

    def token_ids(self, text: str) -> list[int]:
        """One id per byte."""
        return list(text.encode())

    def count_tokens(self, text: str) -> int:
        return len(self.token_ids(text))

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("an engine cannot be pickled")

    def _check(self, request: ChatRequest) -> None:
        if self._closed:
            raise EngineClosed("the engine is closed; create a new Engine")
        check_tools(request.tools)
        check_conversation(request.messages)

    def _call(self, events: Sequence[ChatEvent], timeout: float | None) -> ScriptedCall:
        deadline = Deadline.after(timeout)
        self.calls.append(ScriptedCall(events, stall_at=self.stall_at, deadline=deadline))
        return self.calls[-1]


class _Playback(Channel[Any]):
    """Holds the events up to the stall; `stop` takes back what was not read."""

    def __init__(self, events: Sequence[ChatEvent], stall_at: int | None) -> None:
        super().__init__(on_lost=self.stop)
        self.stopped = False
        for event in events[:stall_at]:
            self.put(event)

    def stop(self) -> None:
        with self._ready:
            if self.stopped:
                return
            self.stopped = True
            self._items.clear()
        self.put(Cancelled("the call was cancelled before it finished"))


class _Script:
    """Stands for the engine's `Reply`: the channel carries chat events already."""

    result: ChatResult | None = None
    enough = False

    def events(self, event: ChatEvent) -> Iterator[ChatEvent]:
        if isinstance(event, Finished):
            self.result = event.result
        yield event

    def abandon(self) -> None:
        """Nothing is recorded."""


def _events(reply: str | Message) -> list[ChatEvent]:
    message = Message("assistant", reply, handle="cf1:0:1") if isinstance(reply, str) else reply
    events: list[ChatEvent] = [ReasoningDelta(message.reasoning)] if message.reasoning else []
    events += [TextDelta(words) for words in re.findall(r"\s*\S+\s*|\s+", message.content)]
    events += [ToolCallReady(index, call) for index, call in enumerate(message.tool_calls)]
    return [*events, _finished(message)]


def _finished(message: Message) -> Finished:
    reason = "tool_calls" if message.tool_calls else "stop"
    return Finished(ChatResult(message, reason, SCRIPTED_REPORT, (1,), (2,)))  # type: ignore[arg-type]

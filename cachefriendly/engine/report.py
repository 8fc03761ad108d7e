"""Keeps the reports of finished calls and turns a row's end into a chat result."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile

from cachefriendly.bounded import BoundedMap
from cachefriendly.engine.losses import losses_of
from cachefriendly.events import CacheReport, ChatResult, FinishReason
from cachefriendly.messages import Message
from cachefriendly.prompt.builder import PromptBuilder
from cachefriendly.prompt.built import BuiltPrompt
from cachefriendly.prompt.record import Record
from cachefriendly.request import ChatRequest
from cachefriendly.rows import Maker, RowDone
from cachefriendly.tools.stream import ParsedReply

__all__ = ["ReplyRecorder", "Totals"]

# Prefills of sessions that never call again must not pile up, nor what ended conversations knew.
SESSIONS_AHEAD = 1000
HANDLES_KEPT = 10_000
HEADS_KEPT = 1000

Finish = Callable[[RowDone, ParsedReply], ChatResult]
Leave = Callable[[tuple[int, ...], ParsedReply, Maker], None]


@dataclass(slots=True)
class Totals:
    """Sums over finished calls."""

    calls: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0
    background_prefilled_tokens: int = 0


class ReplyRecorder:
    """Thread safe: replies finish in their callers' threads.

    A prefill is no call: its tokens appear in the next report of the same namespace and session.
    """

    def __init__(self, *, kept: int, reuse: bool) -> None:
        self._reports: deque[CacheReport] = deque(maxlen=kept)
        self._reuse = reuse
        self._totals = Totals()
        self._ahead: BoundedMap[tuple[str, str | None], int] = BoundedMap(SESSIONS_AHEAD)
        self._makers: BoundedMap[str, Maker] = BoundedMap(HANDLES_KEPT)  # by handle of a call
        # By handle of a call, without conversations.
        self._heads: BoundedMap[str, ChatRequest] = BoundedMap(HEADS_KEPT)
        self._lock = threading.Lock()

    @property
    def last(self) -> CacheReport | None:
        with self._lock:
            return self._reports[-1] if self._reports else None

    def all(self) -> list[CacheReport]:
        with self._lock:
            return list(self._reports)

    def totals(self) -> Totals:
        with self._lock:
            return replace(self._totals)

    def callbacks(
        self, prompts: PromptBuilder, built: BuiltPrompt, request: ChatRequest
    ) -> tuple[Finish, Leave]:
        """What a `Reply` calls when its row ended, and when its caller left early."""

        def finish(done: RowDone, parsed: ParsedReply) -> ChatResult:
            message = _message(parsed)
            output = done.output_ids + tuple(prompts.encode_text(done.stop_text))
            handle = prompts.commit(built, output, message)
            message = replace(message, handle=handle)
            report = self._count(replace(self._report(built, done, request), handle=handle))
            self._makers.put(handle, done.maker)
            self._begun_with(handle, request)
            return ChatResult(message, _reason(done, message), report, built.ids, output)

        def leave(ids: tuple[int, ...], parsed: ParsedReply, maker: Maker) -> None:
            self._makers.put(prompts.commit(built, ids, _message(parsed)), maker)

        return finish, leave

    def prefill_callbacks(self, built: BuiltPrompt, request: ChatRequest) -> tuple[Finish, Leave]:
        """The same for a prefill, which has no reply to record."""

        def finish(done: RowDone, parsed: ParsedReply) -> ChatResult:
            report = self._report(built, done, request)
            with self._lock:
                self._remember(report)
                self._totals.background_prefilled_tokens += report.prefilled_tokens
            return ChatResult(_message(parsed), "stop", report, built.ids, ())

        return finish, lambda ids, parsed, maker: None

    def _remember(self, prefill: CacheReport) -> None:
        """Credit it to the session's next call; without a session nobody knows whose."""
        session = (prefill.namespace, prefill.session)
        if prefill.session is not None:
            ahead = self._ahead.get(session) or 0
            self._ahead.put(session, ahead + prefill.prefilled_tokens)

    def head_of(self, handle: str) -> ChatRequest | None:
        """The request behind a reply, with no messages but the system messages it begins with."""
        return self._heads.get(handle)

    def forget(self, namespace: str) -> None:
        """Drop what is kept of a namespace's requests; of its reports the numbers stay."""
        self._heads.drop(lambda handle, head: head.namespace == namespace)
        self._ahead.drop(lambda session, tokens: session[0] == namespace)
        with self._lock:
            for place, report in enumerate(self._reports):
                if report.namespace == namespace:
                    self._reports[place] = _without_texts(report)

    def _begun_with(self, handle: str, request: ChatRequest) -> None:
        system = takewhile(lambda message: message.role == "system", request.messages)
        self._heads.put(handle, replace(request, messages=tuple(system)))

    def _maker_of(self, parent: Record | None, now: Maker) -> Maker | None:
        """Who made the keys of a recorded call; None for one that this engine never ran."""
        if parent is None:
            return None
        return self._makers.get(parent.handle) or (now if self._makers.forgot else None)

    def _report(self, built: BuiltPrompt, done: RowDone, request: ChatRequest) -> CacheReport:
        return CacheReport(
            prompt_tokens=len(built.ids),
            reused_tokens=done.reused_tokens,
            prefilled_tokens=done.prefilled_tokens,
            generated_tokens=done.sampled_tokens,
            forwarded_tokens=done.forwarded_tokens,
            ttft_s=done.ttft_s,
            total_s=done.total_s,
            losses=losses_of(
                built,
                done,
                reuse=self._reuse,
                made_by=self._maker_of(built.provenance.parent, done.maker),
            ),
            dropped_messages=built.dropped,
            prefix_tokens=built.prefix_tokens,
            namespace=request.namespace,
            session=request.session,
        )

    def _count(self, report: CacheReport) -> CacheReport:
        with self._lock:
            ahead = self._ahead.pop((report.namespace, report.session)) or 0
            report = replace(report, background_prefilled_tokens=ahead)
            self._reports.append(report)
            self._totals.calls += 1
            self._totals.prompt_tokens += report.prompt_tokens
            self._totals.reused_tokens += report.reused_tokens
            self._totals.generated_tokens += report.generated_tokens
        return report


def _without_texts(report: CacheReport) -> CacheReport:
    """The numbers stay, whose they are does not."""
    losses = (replace(loss, before="", after="") for loss in report.losses)
    return replace(report, losses=tuple(losses), session=None, handle="")


def _message(parsed: ParsedReply) -> Message:
    return Message(
        role="assistant",
        content=parsed.content,
        tool_calls=parsed.tool_calls,
        invalid_tool_calls=parsed.invalid_tool_calls,
        reasoning=parsed.reasoning,
    )


def _reason(done: RowDone, message: Message) -> FinishReason:
    if message.tool_calls:
        return "tool_calls"
    return "length" if done.reason == "length" else "stop"

"""One request while it runs: its sequence, its sampler, what it owes its caller.

Token intervals of a row, with P prompt ids and G chosen ids::

    [0 ............ held)  [held ........ P + G)
     in the sequence        still to forward: the rest of the prompt, then one chosen id at a time
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from cachefriendly.engine.channel import Channel
from cachefriendly.engine.request import GenerateRequest, RowDone, RowEvent, RowTokens
from cachefriendly.engine.sampler import Sampler
from cachefriendly.engine.stop import StopWatch
from cachefriendly.store.manager import Opened
from cachefriendly.tools.grammar import GrammarMatcher

__all__ = ["Row", "RowTools"]


@dataclass(frozen=True, slots=True)
class RowTools:
    """What a row needs from its engine to choose ids; built once per request."""

    sampler: Sampler
    stop_ids: frozenset[int]
    matcher: GrammarMatcher | None = None
    watch: StopWatch | None = None


class Row:
    """Engine-thread state of one request. ``cancelled`` is the one field others may set."""

    def __init__(
        self,
        request: GenerateRequest,
        tools: RowTools,
        channel: Channel[RowEvent],
        started: float | None = None,
    ) -> None:
        """``started``: when the call began on `time.perf_counter`'s clock; now when None."""
        self.request = request
        self.ids: list[int] = list(request.prompt_ids)
        self.channel = channel
        self.cancelled = False
        self.opened: Opened | None = None
        self.forwarded = 0
        self.reused = 0
        self.key = ""
        self._tools = tools
        self._emitted = 0
        self._started = time.perf_counter() if started is None else started
        self._first: float | None = None

    @property
    def prompt_length(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def generated(self) -> int:
        return len(self.ids) - self.prompt_length

    @property
    def held(self) -> int:
        return self.opened.sequence.length if self.opened else 0

    @property
    def decoding(self) -> bool:
        """One id to forward, and it is one we chose (or the prompt's last)."""
        return len(self.ids) - self.held == 1

    def open(self, opened: Opened, key: str) -> None:
        """Start on what was held under ``key``; what this row forwards is kept under it too."""
        self.opened = opened
        self.key = key
        self.reused = opened.reused

    def next_ids(self, budget: int) -> list[int]:
        """The ids to forward next, at most ``budget``."""
        return self.ids[self.held : self.held + budget]

    def take(self, logits: Tensor) -> RowDone | None:
        """Choose an id from the logits [vocab] behind the last held token; the end, or None."""
        tools = self._tools
        if self.request.prefill_only:
            return self._done("stop")
        allowed = tools.matcher.allowed() if tools.matcher else None
        token = tools.sampler.choose(logits, allowed)
        if tools.matcher:
            token = tools.matcher.accept(token)
        if self._first is None:
            self._first = time.perf_counter()
        if token in tools.stop_ids:
            return self._done("stop", sampled=self.generated + 1)
        tools.sampler.push(token)
        self.ids.append(token)
        return self._after(token)

    def _after(self, token: int) -> RowDone | None:
        tools = self._tools
        stopped = tools.watch.feed(token) if tools.watch else None
        if stopped is not None:
            sampled = self.generated
            del self.ids[self.prompt_length + stopped.ids :]
            return self._done("stop_string", sampled=sampled, stop_text=stopped.text)
        if tools.matcher and tools.matcher.finished:
            return self._done("stop")
        if self.generated >= (self.request.sampling.max_tokens or 1):
            return self._done("length")
        self._emit(tools.watch.safe if tools.watch else self.generated)
        return None

    def _emit(self, upto: int) -> None:
        if upto > self._emitted:
            start = self.prompt_length
            fresh = self.ids[start + self._emitted : start + upto]
            self._emitted = upto
            self.channel.put(RowTokens(tuple(fresh)))

    def _done(
        self,
        reason: Literal["stop", "stop_string", "length"],
        sampled: int | None = None,
        stop_text: str = "",
    ) -> RowDone:
        self._emit(self.generated)
        now = time.perf_counter()
        return RowDone(
            reason=reason,
            output_ids=tuple(self.ids[self.prompt_length :]),
            sampled_tokens=self.generated if sampled is None else sampled,
            reused_tokens=self.reused,
            prefilled_tokens=self.prompt_length - self.reused,
            forwarded_tokens=self.forwarded,
            ttft_s=(self._first or now) - self._started,
            total_s=now - self._started,
            stop_text=stop_text,
        )

    def close(self, keep: Callable[[Opened, list[int]], None] | None = None) -> None:
        """Give up the sequence; ``keep`` may store what was forwarded first."""
        if self.opened is None:
            return
        opened, self.opened = self.opened, None
        length = min(opened.sequence.length, len(self.ids))
        opened.sequence.crop(length)
        if keep is not None:
            keep(opened, self.ids)
        opened.sequence.close()
        opened.release()

"""One request while it runs: its sequence, its sampler, what it owes its caller.

Token intervals of a row, with P prompt ids and G chosen ids::

    [0 ............ held)  [held ........ P + G)
     in the sequence        still to forward: the rest of the prompt, then one chosen id at a time
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

from torch import Tensor

from cachefriendly.engine.channel import Channel
from cachefriendly.engine.chooser import Chooser
from cachefriendly.rows import GenerateRequest, Maker, RowDone, RowEvent, RowTokens
from cachefriendly.store.contract import KeepPlan, Opened, RowSequence

__all__ = ["Row"]


class Row:
    """Engine-thread state of one request. Others may set ``cancelled`` and ``enough``."""

    def __init__(
        self,
        request: GenerateRequest,
        chooser: Chooser,
        channel: Channel[RowEvent],
        started: float | None = None,
    ) -> None:
        """``started``: when the call began on `time.perf_counter`'s clock; now when None."""
        self.request = request
        self.ids: list[int] = list(request.prompt_ids)
        self.channel = channel
        self.cancelled = False
        self.enough = False
        self.opened: Opened[Any] | None = None
        self.plan = KeepPlan()
        self.forwarded = 0
        self.reused = 0
        self.common = 0
        self.space = ""
        self.regime = 0
        self.other_regime = 0
        self.again = 0
        self.coupled = False
        self.maker = Maker()
        self._chooser = chooser
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
    def sequence(self) -> RowSequence:
        """What the model knows of the row; the row has it from its admission to its end."""
        if self.opened is None:
            raise RuntimeError("the row was not admitted, or has ended")
        sequence: RowSequence = self.opened.sequence
        return sequence

    @property
    def held(self) -> int:
        return self.sequence.length if self.opened else 0

    @property
    def decoding(self) -> bool:
        """One id to forward, and it is one we chose (or the prompt's last)."""
        return len(self.ids) - self.held == 1

    def open(self, opened: Opened[Any], space: str, plan: KeepPlan) -> None:
        """Start on what ``space`` held; what this row forwards is kept there too, by ``plan``."""
        self.opened = opened
        self.space = space
        self.plan = plan
        self.reused = opened.reused
        self.common = opened.common

    def grow_into(self, opened: Opened[Any], space: str) -> None:
        """Start once more with the keys of another rope regime, on what ``space`` held of it."""
        self.opened = opened
        self.space = space
        self.again -= opened.reused

    def next_ids(self, budget: int) -> list[int]:
        """The ids to forward next, at most ``budget``, and not beyond a length that is kept."""
        held = self.held
        stop = self.plan.next_stop(held, len(self.ids))
        return self.ids[held : min(held + budget, stop)]

    def take(self, logits: Tensor) -> RowDone | None:
        """Choose an id from the logits [vocab] behind the last held token; the end, or None."""
        chooser = self._chooser
        if self.request.prefill_only or self.enough:
            return self._done("stop")
        allowed = chooser.matcher.allowed() if chooser.matcher else None
        token = chooser.sampler.choose(logits, allowed)
        if chooser.matcher:
            token = chooser.matcher.accept(token)
        if self._first is None:
            self._first = time.perf_counter()
        if token in chooser.stop_ids:
            return self._done("stop", sampled=self.generated + 1)
        chooser.sampler.push(token)
        self.ids.append(token)
        return self._after(token)

    def _after(self, token: int) -> RowDone | None:
        chooser = self._chooser
        stopped = chooser.watch.feed(token) if chooser.watch else None
        if stopped is not None:
            sampled = self.generated
            del self.ids[self.prompt_length + stopped.ids :]
            return self._done("stop_string", sampled=sampled, stop_text=stopped.text)
        if chooser.matcher and chooser.matcher.finished:
            return self._done("stop")
        if self.generated >= self.request.max_tokens:
            return self._done("length")
        self._emit(chooser.watch.safe if chooser.watch else self.generated)
        return None

    def _emit(self, upto: int) -> None:
        if upto > self._emitted:
            start = self.prompt_length
            fresh = self.ids[start + self._emitted : start + upto]
            self._emitted = upto
            self.channel.put(RowTokens(tuple(fresh), self.maker))

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
            common_tokens=self.common,
            other_regime_tokens=self.other_regime,
            regime_tokens=self.again,
            coupled=self.coupled,
            maker=self.maker,
            ttft_s=(self._first or now) - self._started,
            total_s=now - self._started,
            stop_text=stop_text,
        )

    def close(self, keep: Callable[[Row], None] | None = None) -> None:
        """Give up the sequence; ``keep`` may store what was forwarded first.

        A stop string cuts ids that were forwarded; a state that cannot follow is not kept.
        """
        if self.opened is None:
            return
        opened = self.opened
        certain = min(self.held, len(self.ids))
        if keep is not None and self.sequence.can_crop(certain):
            self.sequence.crop(certain)
            keep(self)
        self.opened = None
        opened.sequence.close()
        opened.lease.release()

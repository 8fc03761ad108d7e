"""Token ids in, token ids out: the part of the engine that another process could host."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from transformers import PreTrainedModel

from cachefriendly.config import EngineConfig
from cachefriendly.engine.channel import Channel, Submitted
from cachefriendly.engine.chooser import ChooserFactory
from cachefriendly.engine.core import Core, CoreStats
from cachefriendly.engine.loader import context_window_of
from cachefriendly.engine.reply import Decoder
from cachefriendly.engine.row import Row
from cachefriendly.engine.runners import RunnerChoice, unchecked_fallback
from cachefriendly.engine.selfcheck import choose_runner
from cachefriendly.engine.worker import Worker
from cachefriendly.errors import ContextOverflow, RequestError
from cachefriendly.rows import GenerateRequest, RowDone, RowEvent
from cachefriendly.store.contract import CacheStats

__all__ = ["TokenEngine"]

log = logging.getLogger(__name__)
T = TypeVar("T")


class TokenEngine:
    """Knows nothing of messages. Takes over the model's attention until `close`.

    Args:
        decoder: makes incremental decoders (ids -> text), for stop strings only.

    Raises:
        UnsupportedModel: the architecture does not run exactly here.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any,
        decoder: Callable[[], Decoder],
        config: EngineConfig,
    ) -> None:
        choice = self._choice(model, config)
        if choice.kind == "fallback":
            name = type(model).__name__
            log.warning(
                "%s runs on the fallback runner, one row at a time: %s", name, choice.reason
            )
        self.window = context_window_of(model.config, config.context_window)
        self._choosers = ChooserFactory(model, tokenizer, decoder)
        self._worker = Worker(Core(model, config, choice), threads=config.threads)

    @staticmethod
    def _choice(model: PreTrainedModel, config: EngineConfig) -> RunnerChoice:
        """Checked, or what was asked for; unchecked, the packed runner until it refuses a step."""
        if config.check_model:
            return choose_runner(model, config.runner)
        if config.runner == "fallback":
            return unchecked_fallback('runner="fallback" was asked for')
        return RunnerChoice("packed")

    def submit(self, request: GenerateRequest, *, started: float | None = None) -> Submitted:
        """Start a request; returns at once. Times are counted from ``started``, else from now.

        Raises:
            RequestError: a setting is unknown or refused, or the prompt is empty; raised in the
                caller's thread.
            ContextOverflow: prompt and new tokens do not fit into the context window.
            EngineClosed: the engine was closed.
        """
        self._check(request)
        chooser = self._choosers.build(request)
        rows: list[Row] = []

        def cancel() -> None:
            rows[0].cancelled = True

        def finish() -> None:
            rows[0].enough = True

        channel: Channel[RowEvent] = Channel(cancel)
        row = Row(request, chooser, channel, started)
        rows.append(row)
        self._worker.post(lambda core: core.add(row))
        return Submitted(channel, cancel, finish)

    def _check(self, request: GenerateRequest) -> None:
        if not request.prompt_ids:
            raise RequestError("the prompt has no tokens; send at least one message with content")
        room = self.window - len(request.prompt_ids)
        if room < (0 if request.prefill_only else request.max_tokens):
            raise ContextOverflow(
                f"{len(request.prompt_ids)} prompt tokens and max_tokens={request.max_tokens} "
                f"exceed the context window of {self.window}"
            )

    def run(self, request: GenerateRequest) -> RowDone:
        """Submit and wait for the end."""
        channel = self.submit(request).channel
        while not isinstance(event := channel.get(), RowDone):
            pass
        return event

    def ask(self, question: Callable[[Core], T]) -> T:
        """Run a function on the engine thread, between two steps, and wait for its answer."""
        return self._worker.ask(question)

    def stats(self) -> tuple[CoreStats, CacheStats]:
        return self.ask(lambda core: (core.stats(), core.cache.stats()))

    def clear(self) -> None:
        """Drop every kept token that no running request uses."""
        self.ask(lambda core: core.cache.clear())

    def forget(self, namespace: str) -> None:
        self.ask(lambda core: core.forget(namespace))

    def close(self) -> None:
        self._worker.close()

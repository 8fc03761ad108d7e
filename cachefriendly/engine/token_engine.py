"""Token ids in, token ids out: the part of the engine that another process could host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from cachefriendly.config import EngineConfig
from cachefriendly.engine.channel import Channel
from cachefriendly.engine.core import Core, CoreStats
from cachefriendly.engine.reply import Decoder
from cachefriendly.engine.request import GenerateRequest, RowDone, RowEvent
from cachefriendly.engine.row import Row
from cachefriendly.engine.rowtools import RowToolbox
from cachefriendly.engine.selfcheck import check_architecture
from cachefriendly.engine.worker import Worker
from cachefriendly.store.manager import CacheStats

__all__ = ["Submitted", "TokenEngine"]


@dataclass(frozen=True, slots=True)
class Submitted:
    """A running request: where its events arrive, and how to stop it (lock-free, repeatable)."""

    channel: Channel[RowEvent]
    cancel: Callable[[], None]


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
        if config.check_model:
            check_architecture(model)
        self._toolbox = RowToolbox(model, tokenizer, decoder)
        self._worker = Worker(Core(model, config), threads=config.threads)

    def submit(self, request: GenerateRequest, *, started: float | None = None) -> Submitted:
        """Start a request; returns at once. Times are counted from ``started``, else from now.

        Raises:
            RequestError: a setting is unknown or refused; raised in the caller's thread.
            EngineClosed: the engine was closed.
        """
        tools = self._toolbox.tools_for(request)
        rows: list[Row] = []

        def cancel() -> None:
            rows[0].cancelled = True

        channel: Channel[RowEvent] = Channel(cancel)
        row = Row(request, tools, channel, started)
        rows.append(row)
        self._worker.post(lambda core: core.add(row))
        return Submitted(channel, cancel)

    def run(self, request: GenerateRequest) -> RowDone:
        """Submit and wait for the end."""
        channel = self.submit(request).channel
        while not isinstance(event := channel.get(), RowDone):
            pass
        return event

    def stats(self) -> tuple[CoreStats, CacheStats]:
        return self._worker.ask(lambda core: (core.stats(), core.cache.stats()))

    def held(self, ids: tuple[int, ...], namespace: str = "") -> int:
        """How many of these ids are held right now."""
        return self._worker.ask(lambda core: core.held(ids, namespace))

    def clear(self) -> None:
        """Drop every kept token that no running request uses."""
        self._worker.ask(lambda core: core.cache.clear())

    def forget(self, namespace: str) -> None:
        self._worker.ask(lambda core: core.forget(namespace))

    def close(self) -> None:
        self._worker.close()

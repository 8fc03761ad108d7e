"""Whose kept tokens a row may take over: spaces by weights, rope regime and namespace."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from transformers import PreTrainedModel

from cachefriendly.compat_transformers import out_of_memory
from cachefriendly.engine.row import Row
from cachefriendly.engine.runners import Backend
from cachefriendly.engine.weights import WeightsWatch
from cachefriendly.rows import Maker
from cachefriendly.store.contract import Store

__all__ = ["Spaces"]

log = logging.getLogger(__name__)


class Spaces:
    """Opens rows on what is kept, and keeps what they forwarded. The engine thread owns it.

    Keys belong to the weights that made them; the owner may change those at any time. Rows that
    run then go on, as a plain ``generate`` would, but nothing of theirs is kept.
    """

    def __init__(self, model: PreTrainedModel, backend: Backend[Any]) -> None:
        self._watch = WeightsWatch(model)
        self._maker = Maker()
        self._outdated: set[str] = set()  # spaces of older weights that rows still hold
        self._take(backend)

    def move(self, backend: Backend[Any]) -> None:
        """Go on with another runner; nothing that the one before made is of use to it."""
        self._maker = replace(self._maker, runner=self._maker.runner + 1)
        self._take(backend)

    def _take(self, backend: Backend[Any]) -> None:
        self.store: Store[Any] = backend.store
        self._regimes = backend.runner.regimes

    def look(self) -> None:
        """Drop everything if the weights have changed; cheap enough for every step."""
        self._drop_if(self._watch.changed())

    def look_closely(self) -> None:
        """`look`, at everything there is."""
        self._drop_if(self._watch.changed_at_all())

    def _drop_if(self, changed: bool) -> None:
        if changed:
            log.info("the model's weights or adapters changed; kept tokens are dropped")
            self._maker = replace(self._maker, weights=self._maker.weights + 1)
            self.store.clear()
            self._outdated = self.store.spaces()

    def enter(self, row: Row) -> None:
        """Give a row that waits its regime: rows of different ones do not wait for each other."""
        row.regime = self._regimes.regime(len(row.ids))

    def open(self, row: Row) -> None:
        """Start a row on the longest beginning of it that is kept."""
        self.enter(row)
        row.maker = self._maker
        space = self._space(row)
        row.open(self.store.open(row.ids, space), space, self.store.plan(row.request))
        if not self._regimes.keeps(row.regime):
            row.other_regime = len(row.ids)
        elif not self._regimes.one:
            others = self._of(row.request.namespace) - {space}
            held = [self.store.lookup(row.ids, other) for other in others]
            row.other_regime = max(held, default=0)

    def follow(self, row: Row) -> None:
        """A row that has grown to a length with other keys forwards everything again."""
        regime = self._regimes.regime(len(row.ids))
        if regime == row.regime:
            return
        row.again += row.held
        self.close(row)
        row.regime, row.maker = regime, self._maker
        space = self._space(row)
        row.grow_into(self.store.open(row.ids, space), space)

    def keep(self, row: Row) -> None:
        """Kept or not, the row goes on: what cannot be kept is forwarded again some day."""
        if row.space != self._space(row) or not self._regimes.keeps(row.regime):
            return
        try:
            self.store.keep(row.sequence, row.ids, row.space)
        except Exception as error:  # keeping may copy
            if not out_of_memory(error):
                log.exception("tokens could not be kept; all that was kept is dropped")
            self.store.clear()

    def close(self, row: Row) -> None:
        """Take a row's sequence; what it forwarded is certain, and kept."""
        row.close(self.keep)
        for space in self._outdated:
            self.store.forget(space)  # what this row held of older weights
        self._outdated &= self.store.spaces()

    def forget(self, namespace: str) -> None:
        for space in self._of(namespace):
            self.store.forget(space)

    def _space(self, row: Row) -> str:
        return f"{self._maker.weights}:{row.regime}:{row.request.namespace}"

    def _of(self, namespace: str) -> set[str]:
        """The spaces of a namespace that hold anything of the current weights."""
        now = [str(self._maker.weights), namespace]
        return {space for space in self.store.spaces() if space.split(":", 2)[::2] == now}

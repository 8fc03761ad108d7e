"""Which rows run in the next forward. Policy only: no tensors, no threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from cachefriendly.engine.row import Row
from cachefriendly.prefix import common_prefix

__all__ = ["Batch", "Scheduler", "Work"]

# A waiting row is held back while another prefills a prefix they share, if that saves this much.
WORTH_WAITING_FOR = 64


@dataclass(frozen=True, slots=True)
class Work:
    """The new tokens of one row in a forward; ``last``: they reach the row's end, logits follow."""

    row: Row
    ids: list[int]
    last: bool


Batch = list[Work]


class Scheduler:
    """First come, first served, with continuous batching and chunked prefill.

    Every decoding row gets its one token in every forward; what is left of the token budget goes
    to prefills in order of arrival.

    Attributes:
        budget: new tokens per forward, over all rows.
    """

    def __init__(self, *, max_batch_tokens: int, max_rows: int, share: bool = True) -> None:
        self.budget = max_batch_tokens
        self._share = share
        self._max_rows = max_rows
        self.waiting: deque[Row] = deque()
        self.running: list[Row] = []

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running

    def add(self, row: Row) -> None:
        self.waiting.append(row)

    def admissible(self) -> Iterator[Row]:
        """Waiting rows that may start now; the caller opens each and calls `start`."""
        for row in list(self.waiting):
            if len(self.running) >= self._max_rows:
                return
            if not (self._share and self._worth_waiting(row)):
                yield row

    def start(self, row: Row) -> None:
        self.waiting.remove(row)
        self.running.append(row)

    def remove(self, row: Row) -> None:
        """Take a row out, wherever it is."""
        if row in self.running:
            self.running.remove(row)
        elif row in self.waiting:
            self.waiting.remove(row)

    def everyone(self) -> list[Row]:
        return [*self.running, *self.waiting]

    def batch(self) -> Batch:
        """The next forward's work; empty when nothing runs."""
        decoding = [row for row in self.running if row.decoding]
        prefilling = [row for row in self.running if not row.decoding]
        work = [Work(row, row.next_ids(1), True) for row in decoding]
        left = max(self.budget - len(work), 0 if work else 1)
        for row in prefilling:
            ids = row.next_ids(left)
            if not ids:
                continue
            work.append(Work(row, ids, row.held + len(ids) == len(row.ids)))
            left -= len(ids)
        return work

    def _worth_waiting(self, row: Row) -> bool:
        """Whether a running prefill will soon hold much more of this prompt than is held now."""
        prompt = row.request.prompt_ids
        for other in self.running:
            if other.request.namespace != row.request.namespace or other.generated:
                continue
            if other.regime != row.regime:
                continue
            shared = common_prefix(other.request.prompt_ids, prompt, 0)
            useful, held_at = other.plan.useful(min(shared, len(prompt) - 1))
            # What the other one took over is held already; this row can take it over as well.
            if useful - other.reused >= WORTH_WAITING_FOR and other.held < held_at:
                return True
        return False

"""What the loop asks of kept tokens, whichever runner made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from cachefriendly.rows import GenerateRequest
from cachefriendly.store.tree import Lease

__all__ = ["CacheStats", "KeepPlan", "Opened", "RowSequence", "Store"]


class RowSequence(Protocol):
    """What the model knows of one running row: the state behind its forwarded tokens."""

    @property
    def length(self) -> int:
        """Tokens forwarded."""

    def can_crop(self, length: int) -> bool:
        """Whether `crop` to this length leaves exactly what a cold run of it would leave."""

    def crop(self, length: int) -> None:
        """Keep the first ``length`` tokens."""

    def close(self) -> None:
        """Give up everything held."""


S = TypeVar("S", bound=RowSequence)


@dataclass(frozen=True, slots=True)
class KeepPlan:
    """Where a store can take over a row's tokens.

    Attributes:
        at: lengths at which a prefill stops and what it holds is kept, ascending.
        anywhere: what is kept serves every shorter prefix too; else only the lengths kept.
    """

    at: tuple[int, ...] = ()
    anywhere: bool = True

    def next_stop(self, held: int, end: int) -> int:
        """Where a forward that starts behind ``held`` tokens must end at the latest."""
        return min((stop for stop in self.at if held < stop), default=end)

    def useful(self, shared: int) -> tuple[int, int]:
        """For a row that shares ``shared`` tokens: how many it could take over once this row
        holds the second number."""
        if self.anywhere:
            return shared, self.at[-1] if self.at else shared
        best = max((stop for stop in self.at if stop <= shared), default=0)
        return best, best


@dataclass(frozen=True, slots=True)
class Opened(Generic[S]):
    """A sequence opened on what was held, and the lease that keeps it held meanwhile.

    ``common``: tokens of the longest held sequence with the same beginning. More than ``reused``
    when the state at the place where they part was not kept.
    """

    sequence: S
    lease: Lease
    reused: int
    common: int


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counters of the kept tokens. ``bytes`` are physical: what is shared counts once.

    ``extents`` are the allocations of the packed runner, ``states`` those of the fallback runner
    that are no keys and values of single tokens.
    """

    bytes: int
    budget: int
    extents: int
    tokens: int
    nodes: int
    evictions: int
    evicted_tokens: int
    states: int = 0


class Store(Protocol[S]):
    """Kept tokens of an engine under one byte budget, separated by ``space``.

    Not thread safe: the engine thread owns it.
    """

    def plan(self, request: GenerateRequest) -> KeepPlan:
        """Where the tokens of this request's row are to be kept while it is prefilled."""

    def lookup(self, ids: Sequence[int], space: str = "") -> int:
        """Tokens of ``ids`` that are held, without touching anything."""

    def open(self, ids: Sequence[int], space: str = "") -> Opened[S]:
        """A sequence on the longest usable held prefix of ``ids``, at most ``len(ids) - 1``."""

    def keep(self, sequence: S, ids: Sequence[int], space: str = "") -> None:
        """Hold what a sequence forwarded: the first ``sequence.length`` of ``ids``."""

    def make_room(self, wanted: int = 0) -> int:
        """Evict the least recently used until ``wanted`` more bytes fit; returns bytes freed."""

    def forget(self, space: str) -> None:
        """Drop everything of a space that is not in use right now."""

    def clear(self) -> None:
        """Drop everything that is not in use right now."""

    def spaces(self) -> set[str]:
        """The spaces that hold anything."""

    def stats(self) -> CacheStats: ...

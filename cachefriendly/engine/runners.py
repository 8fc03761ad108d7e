"""Runners: what the loop asks of one, and which one a model gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

from torch import Tensor

from cachefriendly.engine.rope import RopeRegimes
from cachefriendly.store.contract import RowSequence, Store

__all__ = ["Backend", "RowInput", "Runner", "RunnerChoice", "RunnerKind", "unchecked_fallback"]

RunnerKind: TypeAlias = Literal["packed", "fallback"]
S = TypeVar("S", bound=RowSequence)


@dataclass(frozen=True, slots=True)
class RowInput(Generic[S]):
    """New tokens of one row. ``logits`` False: a prefill chunk that is not the prompt's last.

    ``length``: tokens of the whole row, those still to come included (0: it ends with ``ids``).
    Models whose keys depend on it make a chunk's keys for the row's whole length.
    """

    sequence: S
    ids: Sequence[int]
    logits: bool = True
    length: int = 0

    @property
    def whole(self) -> int:
        """Tokens of the whole row."""
        return max(self.length, self.sequence.length + len(self.ids))


class Runner(Protocol[S]):
    """Forwards new tokens of rows, exactly as a cold run of the whole row would.

    ``together``: rows of one call share a forward; their lengths must be of one of the
    ``regimes``. ``forwards`` and ``tokens`` count what was run.
    """

    together: bool
    regimes: RopeRegimes
    forwards: int
    tokens: int

    def forward(self, rows: Sequence[RowInput[S]]) -> Tensor:
        """Forward the rows' new tokens and count them as held.

        Returns:
            float32 logits [rows with ``logits``, vocab], in row order.

        Raises:
            UnsupportedModel: this model does not run exactly here. Whatever is raised, no row's
            sequence has changed.
        """

    def close(self) -> None:
        """Give the model back as it was. Safe to repeat."""


@dataclass(frozen=True, slots=True)
class RunnerChoice:
    """Which runner a model gets.

    ``reason``: why not the packed one, in a sentence; else empty. ``step``: most tokens of a
    fallback forward that continues a row, None for any number.
    """

    kind: RunnerKind
    reason: str = ""
    step: int | None = None


def unchecked_fallback(reason: str) -> RunnerChoice:
    """The fallback runner without a check: token by token behind a row's first forward.

    Some models (MiniMax, Mamba, Jamba) silently start anew when several tokens follow a state, and
    only the check would tell.
    """
    return RunnerChoice("fallback", reason, step=1)


@dataclass(frozen=True, slots=True)
class Backend(Generic[S]):
    """A runner and the store of what it made."""

    choice: RunnerChoice
    runner: Runner[S]
    store: Store[S]

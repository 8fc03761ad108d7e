"""The plan of one packed forward: which rows, where their tokens go, what each may see.

A forward has shape [1, T]: the new tokens of all rows one after another. The plan reaches the
attention function through a context variable, because some models drop keyword arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from cachefriendly.errors import UnsupportedModel
from cachefriendly.kv.extent import Piece
from cachefriendly.kv.sequence import Sequence, Span

__all__ = [
    "ForeignUse",
    "MaskSpec",
    "Offsets",
    "RowPlan",
    "SlotTable",
    "StepPlan",
    "View",
    "active_plan",
    "running",
]

MaskFunction = Callable[[Any, Any, Any, Any], Any]

_PLAN: ContextVar[StepPlan | None] = ContextVar("cachefriendly_step", default=None)


def active_plan() -> StepPlan | None:
    return _PLAN.get()


@contextmanager
def running(plan: StepPlan) -> Iterator[None]:
    token = _PLAN.set(plan)
    try:
        yield
    finally:
        _PLAN.reset(token)


class ForeignUse(UnsupportedModel, AttributeError, TypeError):
    """A model used an object of ours in a way it is not made for; ``hasattr`` still says no."""


@dataclass(frozen=True, eq=False, slots=True)
class MaskSpec:
    """Stands in for a mask tensor: the ``mask_function`` transformers composed for some layers.

    Windows and chunks exist nowhere else for some models (Llama 4, PhiMoE). A model that indexes
    or changes its mask fails on this object, which is what we want.
    """

    mask_function: MaskFunction
    plain_causal: bool

    def __getattr__(self, name: str) -> Any:
        raise ForeignUse(f"the model works on its attention mask itself ({name})")

    def __getitem__(self, index: Any) -> Any:
        raise ForeignUse("the model works on its attention mask itself (a part of it)")


@dataclass(frozen=True, slots=True)
class View:
    """What one row may see under one mask.

    ``causal``: everything before each query. ``tail``: every query sees exactly the tokens from
    ``first`` on (a window while decoding). ``mask``: ``visible`` [n, past + n - first] says which.
    """

    kind: Literal["causal", "tail", "mask"]
    first: int = 0
    visible: Tensor | None = None


class SlotTable:
    """Numbers the places where a model stores keys: (layer, n-th attention call of that layer)."""

    def __init__(self) -> None:
        self._slots: dict[tuple[int, int], int] = {}

    def slot(self, layer: int, call: int) -> int:
        return self._slots.setdefault((layer, call), len(self._slots))

    def __len__(self) -> int:
        return len(self._slots)


class RowPlan:
    """One row of a forward: n new tokens behind ``past`` held ones.

    Packed tokens [start, start + n) are the sequence's tokens [past, past + n).
    """

    __slots__ = ("_views", "held", "n", "past", "readable", "spans", "start")

    def __init__(self, start: int, sequence: Sequence, n: int) -> None:
        self.start = start
        self.n = n
        self.past = sequence.length
        self.held = sequence.pieces
        self.spans: tuple[Span, ...] = tuple(sequence.reserve(n))
        self.readable = _with_new(self.held, self.spans)
        self._views: dict[tuple[int, torch.device], View] = {}

    def view(self, spec: MaskSpec, device: torch.device) -> View:
        """Evaluate a mask at this row's own positions, once per forward and device of a layer."""
        if spec.plain_causal:
            return _CAUSAL
        view = self._views.get((id(spec), device))
        if view is None:
            view = self._views[id(spec), device] = self._evaluate(spec, device)
        return view

    def _evaluate(self, spec: MaskSpec, device: torch.device) -> View:
        total = self.past + self.n
        queries = torch.arange(self.past, total, device=device)[:, None]
        keys = torch.arange(total, device=device)[None, :]
        zero = torch.zeros((), dtype=torch.long, device=device)
        try:
            visible = spec.mask_function(zero, zero, queries, keys)
        except IndexError as failure:
            raise UnsupportedModel(
                "the model's mask is made for the tokens of one forward, not for positions"
            ) from failure
        visible = torch.as_tensor(visible, device=device).expand(self.n, total)
        if bool((visible == (keys <= queries)).all()):
            return _CAUSAL
        seen = visible.any(0).nonzero()
        if not bool(visible.any(1).all()):
            raise UnsupportedModel("a mask hides every key from some token")
        first = int(seen[0])
        if self.n == 1 and bool(visible[0, first:].all()):
            return View("tail", first)
        return View("mask", first, visible[:, first:])


_CAUSAL = View("causal")


@dataclass(frozen=True, slots=True)
class Offsets:
    """The length of the past, of which a packed forward has several: a model may add it to the
    indices [T] of the packed tokens and gets their positions. Anything else fails."""

    of_tokens: list[int]

    def __radd__(self, indices: Tensor) -> Tensor:
        return indices + torch.tensor(self.of_tokens, device=indices.device)

    __add__ = __radd__


@dataclass(slots=True)
class StepPlan:
    """All rows of one forward, and what attention did with them so far."""

    rows: list[RowPlan]
    tokens: int
    slots: SlotTable
    calls: dict[int, int] = field(default_factory=dict)
    stored: dict[int, int] = field(default_factory=dict)
    _seen: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _kept: list[Tensor] = field(default_factory=list)

    def slot_for(self, layer: int, key: Tensor, value: Tensor) -> tuple[int, bool]:
        """The slot of these tensors, and whether they must still be written.

        A tensor that was stored in this forward already (layers that share keys) has its slot.
        The tensors stay referenced until the step ends: a recycled address would look shared.
        """
        call = self.calls.get(layer, 0)
        self.calls[layer] = call + 1
        identity = (*_identity(key), *_identity(value))
        known = self._seen.get(identity)
        if known is not None:
            return known, False
        slot = self.slots.slot(layer, call)
        self._seen[identity] = slot
        self._kept += (key, value)
        self.stored[slot] = key.shape[2]
        return slot, True

    def offsets(self) -> Offsets:
        return Offsets([row.past - row.start for row in self.rows for _ in range(row.n)])

    def check(self, hidden_layers: int) -> None:
        """Refuse a forward in which attention did not see every token in every layer.

        Raises:
            UnsupportedModel: the model has layers that keep state elsewhere, or its own attention.
        """
        if len(self.calls) < hidden_layers:
            raise UnsupportedModel(
                f"only {len(self.calls)} of {hidden_layers} layers used the attention interface; "
                "the others keep their state elsewhere (recurrent or convolutional layers, or an "
                "attention of their own)"
            )
        short = [slot for slot, tokens in self.stored.items() if tokens != self.tokens]
        if short:
            raise UnsupportedModel(
                f"slot {short[0]} received {self.stored[short[0]]} of {self.tokens} keys"
            )


def _identity(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def _with_new(held: tuple[Piece, ...], spans: tuple[Span, ...]) -> tuple[Piece, ...]:
    """Held pieces plus the reservation, as they read once the new keys are written."""
    pieces = list(held)
    for span in spans:
        stop = span.offset + span.tokens
        if pieces and pieces[-1].extent is span.extent:
            pieces[-1] = Piece(span.extent, pieces[-1].start, stop)
        else:
            pieces.append(Piece(span.extent, span.offset, stop))
    return tuple(pieces)

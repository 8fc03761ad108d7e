"""The fallback runner: a model's own cache and attention, one row per forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from cachefriendly.compat_transformers import cache_argument, forward_arguments, returned_cache
from cachefriendly.engine.devices import input_device
from cachefriendly.engine.rope import RopeControl
from cachefriendly.engine.runners import RowInput
from cachefriendly.errors import UnsupportedModel
from cachefriendly.kv.fallback_sequence import FallbackSequence
from cachefriendly.kv.takeover import EvalMode

__all__ = ["FallbackRunner"]


class FallbackRunner:
    """Runs what the packed runner cannot: recurrent and convolutional layers, alibi, any cache.

    Takes nothing over: its owner may use the model at any time. The model makes its own cache in
    a row's first forward; every later one continues a fork of it.

    Args:
        step: most tokens of a forward that continues a row; None for any number. Some models
            start anew when several tokens follow a state.
    """

    together = False

    def __init__(self, model: PreTrainedModel, *, step: int | None = None) -> None:
        self.model = model
        self.forwards = 0
        self.tokens = 0
        self._step = step
        self._argument = cache_argument(model)
        self._taken = forward_arguments(model)
        self._rope = RopeControl(model)
        self.regimes = self._rope.regimes
        self._eval = EvalMode(model)
        self._device = input_device(model)

    def close(self) -> None:
        """Give the model back as it was. Safe to repeat."""
        self._rope.undo()
        self._eval.undo()

    def forward(self, rows: Sequence[RowInput[FallbackSequence]]) -> Tensor:
        """Forward the rows' new tokens, one row after another, and count them as held.

        Returns:
            float32 logits [rows with ``logits``, vocab], in row order.

        Raises:
            UnsupportedModel: the model is in training mode, or returned no cache.
        """
        if self.model.training:
            raise UnsupportedModel("the model is in training mode; call model.eval()")
        with torch.inference_mode():
            results = [self._row(row) for row in rows]
        for row, (state, _) in zip(rows, results, strict=True):
            row.sequence.commit(state, len(row.ids))
            self.tokens += len(row.ids)
        wanted = [logits for row, (_, logits) in zip(rows, results, strict=True) if row.logits]
        return torch.stack(wanted) if wanted else torch.empty(0, 0)

    def _row(self, row: RowInput[FallbackSequence]) -> tuple[Any, Tensor]:
        """The state behind a row's new tokens, and the logits [vocab] of the last one."""
        past, ids = row.sequence.length, list(row.ids)
        state = row.sequence.fork_state()
        step = len(ids) if self._step is None or not past else self._step
        output: Any = None
        with self._rope.length(row.whole):
            for start in range(0, len(ids), step):
                output = self._call(ids[start : start + step], past + start, state)
                state = self._state_of(output, state)
        return state, output.logits[0, -1].float()

    def _call(self, ids: list[int], past: int, state: Any) -> Any:
        inputs: dict[str, Any] = {
            "input_ids": torch.tensor([ids], device=self._device),
            "use_cache": True,
        }
        if "position_ids" in self._taken:
            positions = torch.arange(past, past + len(ids), device=self._device)
            inputs["position_ids"] = positions[None]
        if "logits_to_keep" in self._taken:
            # An index, not a count: a count makes some models drop query tokens inside.
            inputs["logits_to_keep"] = torch.tensor([len(ids) - 1], device=self._device)
        if state is not None:
            inputs[self._argument] = state
        self.forwards += 1
        return self.model(**inputs)

    def _state_of(self, output: Any, before: Any) -> Any:
        state = returned_cache(output)
        if state is None:
            state = before
        if state is None:
            raise UnsupportedModel(f"{type(self.model).__name__} returned no cache to go on from")
        return state

"""The packed runner: one forward for the new tokens of all rows."""

from __future__ import annotations

from collections.abc import Sequence as Ordered

import torch
from torch import Tensor
from transformers import PreTrainedModel

from cachefriendly.compat_transformers import cache_argument, text_config
from cachefriendly.engine.devices import input_device, spread_over_devices
from cachefriendly.engine.rope import RopeControl
from cachefriendly.engine.runners import RowInput
from cachefriendly.errors import UnsupportedModel
from cachefriendly.kv.attention import PassThroughCache
from cachefriendly.kv.plan import RowPlan, SlotTable, StepPlan, running
from cachefriendly.kv.sequence import Sequence
from cachefriendly.kv.takeover import Takeover

__all__ = ["PackedRunner", "RowInput"]


class PackedRunner:
    """Runs rows of unequal length in one forward of shape [1, T], exactly.

    Owns the model's attention while open; `close` gives the model back.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.together = True
        self.forwards = 0
        self.tokens = 0
        self._takeover = Takeover(model)
        self._rope = RopeControl(model)
        self.regimes = self._rope.regimes
        self._slots = SlotTable()
        self._cache_argument = cache_argument(model)
        self._layers: int = text_config(model).num_hidden_layers
        self._device = input_device(model)
        self._spread = spread_over_devices(model)

    def close(self) -> None:
        self._rope.undo()
        self._takeover.undo()

    def forward(self, rows: Ordered[RowInput[Sequence]]) -> Tensor:
        """Forward the rows' new tokens and count them as held.

        Returns:
            float32 logits [rows with ``logits``, vocab], in row order.

        Raises:
            UnsupportedModel: attention did not see what it must; nothing was counted.
            ValueError: the rows' lengths are of different rope regimes; nothing was counted.
        """
        if self.model.training:
            raise UnsupportedModel("the model is in training mode; call model.eval()")
        length = self.regimes.common_length([row.whole for row in rows])
        plan, ids, positions, last = self._plan(rows)
        try:
            with torch.inference_mode(), running(plan), self._rope.length(length):
                output = self.model(
                    input_ids=ids,
                    position_ids=positions,
                    use_cache=True,
                    logits_to_keep=last,
                    **{self._cache_argument: PassThroughCache()},
                )
            plan.check(self._layers)
        except BaseException:
            for row in rows:
                row.sequence.abort()
            raise
        for row in rows:
            row.sequence.commit()
        self.forwards += 1
        self.tokens += plan.tokens
        logits: Tensor = output.logits[0, : self._wanted(rows)]
        return logits.float()

    def _plan(
        self, rows: Ordered[RowInput[Sequence]]
    ) -> tuple[StepPlan, Tensor, Tensor, Tensor | list[int]]:
        plans: list[RowPlan] = []
        ids: list[int] = []
        positions: list[int] = []
        last: list[int] = []
        for row in rows:
            plan = RowPlan(len(ids), row.sequence, len(row.ids))
            plans.append(plan)
            ids += row.ids
            positions += range(plan.past, plan.past + plan.n)
            if row.logits:
                last.append(len(ids) - 1)
        # An index tensor, never an int: an int makes some models drop query tokens inside.
        # It must not be empty; a step of prefill chunks alone asks for one row and ignores it.
        # The index is used where the last layer runs; a list of numbers fits every device.
        keep = last or [len(ids) - 1]
        step = StepPlan(plans, len(ids), self._slots)
        return (
            step,
            torch.tensor([ids], device=self._device),
            torch.tensor([positions], device=self._device),
            keep if self._spread else torch.tensor(keep, device=self._device),
        )

    @staticmethod
    def _wanted(rows: Ordered[RowInput[Sequence]]) -> int:
        return sum(row.logits for row in rows)

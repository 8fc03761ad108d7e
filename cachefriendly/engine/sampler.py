"""From a row's logits to its next id: transformers' own processors, one generator per row."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from cachefriendly.compat_transformers import generation_config_for, logits_processors
from cachefriendly.config import Sampling
from cachefriendly.errors import RowFailed
from cachefriendly.rows import GenerateRequest

__all__ = ["Sampler", "generation_settings"]


def generation_settings(sampling: Sampling) -> dict[str, object]:
    """This call's settings under transformers' names; what is None stays the model's own."""
    settings: dict[str, object] = {
        name: value
        for name in ("top_p", "top_k", "min_p", "repetition_penalty")
        if (value := getattr(sampling, name)) is not None
    }
    if sampling.temperature is not None:
        settings["do_sample"] = sampling.temperature > 0
        if sampling.temperature > 0:
            settings["temperature"] = float(sampling.temperature)
    return settings | dict(sampling.extra)


class Sampler:
    """Chooses ids for one row. A seed gives the same ids alone and in a batch, because processors
    see this row only and the generator belongs to the request.

    Raises:
        RequestError: a setting is unknown to transformers or refused by it.
    """

    def __init__(self, model: PreTrainedModel, request: GenerateRequest) -> None:
        sampling, prompt_ids, room = request.sampling, request.prompt_ids, request.max_tokens
        settings = generation_settings(sampling)
        config = generation_config_for(model, settings, len(prompt_ids), room)
        self._sample = bool(config.do_sample)
        prompt = torch.tensor([prompt_ids])
        self._processors = logits_processors(model, config, prompt)
        # Processors want all ids of the row in one tensor: one that grows in place.
        self._ids = torch.empty(1, len(prompt_ids) + room, dtype=torch.long)
        self._ids[0, : len(prompt_ids)] = prompt
        self._length = len(prompt_ids)
        self._generator = torch.Generator()
        if sampling.seed is not None:
            self._generator.manual_seed(sampling.seed)
        else:
            self._generator.seed()

    def choose(self, logits: Tensor, allowed: Tensor | None = None) -> int:
        """The next id from float32 logits [vocab]; ``allowed`` [vocab] bool is a grammar's mask.

        Raises:
            RowFailed: no logit is finite.
        """
        scores = self._masked(self._scores(logits.cpu()[None], allowed), allowed)
        best = scores.max()
        if not torch.isfinite(best):
            size = scores.shape[1]
            raise RowFailed(f"no token can be chosen: the best of {size} logits is {best}")
        if not self._sample:
            return int(scores.argmax())
        weights = torch.softmax(scores, -1)
        return int(torch.multinomial(weights, 1, generator=self._generator))

    def _scores(self, raw: Tensor, allowed: Tensor | None) -> Tensor:
        """Processed scores [1, vocab].

        The grammar comes first: behind top-k nothing it allows might be left. Where a processor
        forbids all that the grammar allows, the grammar wins.
        """
        masked = self._masked(raw, allowed)
        if not self._processors:
            return masked
        scores: Tensor = self._processors(self._ids[:, : self._length], masked)  # type: ignore[arg-type]
        if allowed is not None and not torch.isfinite(self._masked(scores, allowed).max()):
            return masked
        return scores

    @staticmethod
    def _masked(scores: Tensor, allowed: Tensor | None) -> Tensor:
        return scores if allowed is None else scores.masked_fill(~allowed, float("-inf"))

    def push(self, token: int) -> None:
        """Count a chosen id as part of the row."""
        self._ids[0, self._length] = token
        self._length += 1

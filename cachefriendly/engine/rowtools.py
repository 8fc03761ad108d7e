"""Builds what a row needs to choose ids: sampler, stop ids, grammar matcher, stop strings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import PreTrainedModel

from cachefriendly.compat_transformers import stop_ids, text_config
from cachefriendly.engine.reply import Decoder
from cachefriendly.engine.request import GenerateRequest
from cachefriendly.engine.row import RowTools
from cachefriendly.engine.sampler import Sampler
from cachefriendly.engine.stop import StopWatch
from cachefriendly.tools.grammar import GrammarMatcher, Vocabulary

__all__ = ["RowToolbox"]


class RowToolbox:
    """Runs in the caller's thread, so that a bad setting raises where the caller is."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: Any, decoder: Callable[[], Decoder]
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._decoder = decoder
        self._stop_ids = stop_ids(model, tokenizer)
        self._vocab_size: int = text_config(model).vocab_size

    def tools_for(self, request: GenerateRequest) -> RowTools:
        """Raises RequestError for settings that transformers or the grammar refuses."""
        sampling = request.sampling
        stops = self._stop_ids | frozenset(sampling.stop_token_ids)
        matcher = None
        if request.grammar is not None:
            vocabulary = Vocabulary.from_tokenizer(
                self._tokenizer, self._vocab_size, stop_ids=self._stop_ids
            )
            matcher = GrammarMatcher(
                request.grammar, vocabulary, max_tokens=sampling.max_tokens or 1
            )
        watch = StopWatch(sampling.stop, self._decoder().push) if sampling.stop else None
        sampler = Sampler(self._model, sampling, list(request.prompt_ids))
        return RowTools(sampler, stops, matcher, watch)

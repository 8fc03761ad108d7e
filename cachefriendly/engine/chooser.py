"""What a row needs to choose ids: sampler, stop ids, grammar matcher, stop strings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from cachefriendly.compat_transformers import stop_ids, text_config
from cachefriendly.engine.reply import Decoder
from cachefriendly.engine.sampler import Sampler
from cachefriendly.engine.stop import StopWatch
from cachefriendly.rows import GenerateRequest
from cachefriendly.tools.matcher import GrammarMatcher
from cachefriendly.tools.vocabulary import Vocabulary

__all__ = ["Chooser", "ChooserFactory"]


@dataclass(frozen=True, slots=True)
class Chooser:
    """How one row chooses its ids and knows its end."""

    sampler: Sampler
    stop_ids: frozenset[int]
    matcher: GrammarMatcher | None = None
    watch: StopWatch | None = None


class ChooserFactory:
    """Runs in the caller's thread, so that a bad setting raises where the caller is."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: Any, decoder: Callable[[], Decoder]
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._decoder = decoder
        self._stop_ids = stop_ids(model, tokenizer)
        self._vocab_size: int = text_config(model).vocab_size

    def build(self, request: GenerateRequest) -> Chooser:
        """Raises RequestError for settings that transformers or the grammar refuses."""
        sampling = request.sampling
        stops = self._stop_ids | frozenset(sampling.stop_token_ids)
        matcher = None
        if request.grammar is not None:
            vocabulary = Vocabulary.from_tokenizer(
                self._tokenizer, self._vocab_size, stop_ids=self._stop_ids
            )
            matcher = GrammarMatcher(request.grammar, vocabulary, max_tokens=request.max_tokens)
        watch = StopWatch(sampling.stop, self._decoder().push) if sampling.stop else None
        sampler = Sampler(self._model, request)
        return Chooser(sampler, stops, matcher, watch)

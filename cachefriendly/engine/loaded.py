"""What exists once a model is loaded: prompts above, token engine below."""

from __future__ import annotations

from cachefriendly.config import EngineConfig
from cachefriendly.engine.loader import LoadedModel, model_fingerprint
from cachefriendly.engine.token_engine import TokenEngine
from cachefriendly.prompt.builder import PromptBuilder

__all__ = ["LoadedEngine"]


class LoadedEngine:
    """What exists once the model is loaded; an Engine without it is only a description."""

    def __init__(self, loaded: LoadedModel, config: EngineConfig) -> None:
        model, tokenizer = loaded.model, loaded.tokenizer
        self.loaded = loaded
        self.prompts = PromptBuilder(
            tokenizer,
            policy=config.history,
            clock=config.clock,
            model_fingerprint=model_fingerprint(model),
        )
        self.tokens = TokenEngine(model, tokenizer, self.prompts.decoder, config)

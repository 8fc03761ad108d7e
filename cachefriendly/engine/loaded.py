"""What exists once a model is loaded: prompts above, token engine below."""

from __future__ import annotations

from transformers import PreTrainedModel

from cachefriendly.config import EngineConfig
from cachefriendly.engine.loader import LoadedModel, context_window_of, model_fingerprint
from cachefriendly.engine.token_engine import TokenEngine
from cachefriendly.prompt.builder import PromptBuilder
from cachefriendly.prompt.overflow import ContextWindow

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
            window=_window(model, config),
        )
        self.tokens = TokenEngine(model, tokenizer, self.prompts.decoder, config)


def _window(model: PreTrainedModel, config: EngineConfig) -> ContextWindow | None:
    """What cuts long histories; None where they are refused."""
    if config.overflow == "refuse":
        return None
    tokens = context_window_of(model.config, config.context_window)
    return ContextWindow(config.overflow, tokens=tokens, reply_room=config.default_max_tokens)

"""What exists once a model is loaded: prompts above, token engine below."""

from __future__ import annotations

from dataclasses import replace

from transformers import PreTrainedModel

from cachefriendly.config import EngineConfig, Sampling
from cachefriendly.engine.loader import LoadedModel, context_window_of, model_fingerprint
from cachefriendly.engine.token_engine import TokenEngine
from cachefriendly.errors import ContextOverflow
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
        self._max_tokens = config.default_max_tokens

    def limited(self, sampling: Sampling, prompt_tokens: int) -> Sampling:
        """Sampling with ``max_tokens`` resolved: never beyond the context window.

        Raises:
            ContextOverflow: the prompt leaves no room for a reply.
        """
        room = self.tokens.window - prompt_tokens
        if prompt_tokens and room < 1:
            raise ContextOverflow(
                f"the prompt has {prompt_tokens} tokens, but the context window is "
                f"{self.tokens.window}; shorten the history (a window or summary memory) or raise "
                "context_window"
            )
        return replace(
            sampling, max_tokens=max(1, min(sampling.max_tokens or self._max_tokens, room))
        )


def _window(model: PreTrainedModel, config: EngineConfig) -> ContextWindow | None:
    """What cuts long histories; None where they are refused."""
    if config.overflow == "refuse":
        return None
    tokens = context_window_of(model.config, config.context_window)
    return ContextWindow(config.overflow, tokens=tokens, reply_room=config.default_max_tokens)

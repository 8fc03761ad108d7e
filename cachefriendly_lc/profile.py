"""What the model can do, in LangChain's terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from langchain_core.language_models import ModelProfile

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine

__all__ = ["profile_of"]

_WINDOW = "max_input_tokens"


class _Profile(dict[str, Any]):
    """Looks up the context window when it is asked for: knowing it loads the model."""

    def __init__(self, engine: Engine, known: dict[str, Any]) -> None:
        super().__init__(known)
        self._engine = engine

    def __missing__(self, key: str) -> Any:
        if key != _WINDOW:
            raise KeyError(key)
        self[_WINDOW] = self._engine.context_window
        return self[_WINDOW]

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self or key == _WINDOW else default


def profile_of(engine: Engine) -> ModelProfile:
    """The profile; agents read it to choose how to ask for structured output."""
    known = ModelProfile(
        text_inputs=True,
        text_outputs=True,
        image_inputs=False,
        tool_calling=True,
        tool_choice=True,
        structured_output=True,
    )
    return cast("ModelProfile", _Profile(engine, dict(known)))

"""What the model can do, in LangChain's terms."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from langchain_core.language_models import ModelProfile

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine

__all__ = ["profile_of"]


def profile_of(engine: Engine) -> ModelProfile:
    """The profile; agents read it to choose how to ask for structured output."""
    profile = ModelProfile(
        text_inputs=True,
        text_outputs=True,
        image_inputs=False,
        image_url_inputs=False,
        pdf_inputs=False,
        audio_inputs=False,
        video_inputs=False,
        image_outputs=False,
        audio_outputs=False,
        video_outputs=False,
        tool_calling=True,
        tool_choice=True,
        structured_output=True,
    )
    with suppress(OSError):  # a checkpoint that cannot be read now: the first call will say so
        profile["max_input_tokens"] = engine.context_window
    return profile

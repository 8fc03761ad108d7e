"""Messages to exact token ids: rendering, tokenizing, recorded replies."""

from __future__ import annotations

from cachefriendly.prompt.builder import PromptBuilder
from cachefriendly.prompt.built import BuiltPrompt, PromptSpan
from cachefriendly.prompt.decode import StreamDecoder
from cachefriendly.prompt.fingerprint import prompt_fingerprint

__all__ = ["BuiltPrompt", "PromptBuilder", "PromptSpan", "StreamDecoder", "prompt_fingerprint"]

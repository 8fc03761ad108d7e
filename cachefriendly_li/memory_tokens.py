"""What memories count tokens with, and what of a message they count."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import llama_index.core
from llama_index.core.base.llms.types import ChatMessage, ThinkingBlock, ToolCallBlock
from llama_index.core.llms.llm import LLM
from llama_index.core.settings import Settings
from llama_index.core.utils import get_tokenizer

from cachefriendly_li.llm import CacheFriendlyLLM

__all__ = ["MessageCounter", "Tokenizer", "counted_text", "is_default", "tokenizer_of"]

Tokenizer: TypeAlias = Callable[[str], list[Any]]


def tokenizer_of(llm: LLM | None) -> Tokenizer:
    """The engine's own tokenizer; without an engine what LlamaIndex counts with, by default."""
    known = llm if llm is not None else Settings._llm
    return known.tokenize if isinstance(known, CacheFriendlyLLM) else get_tokenizer()


def is_default(tokenizer: Tokenizer) -> bool:
    """Whether it stands in where nobody named another, or counts no more: its engine is closed."""
    llm = getattr(tokenizer, "__self__", None)
    if isinstance(llm, CacheFriendlyLLM):
        return llm.closed
    return tokenizer is llama_index.core.global_tokenizer


class MessageCounter:
    """Tokens of messages: of their text and their calls. A text is counted once."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._tokenizer: Tokenizer | None = None

    def texts(self, texts: Sequence[str], tokenizer: Tokenizer) -> list[int]:
        """One number for each text; another tokenizer than before counts all anew."""
        if tokenizer != self._tokenizer:
            self._known, self._tokenizer = {}, tokenizer
        known = self._known  # another thread may begin anew meanwhile
        for text in texts:
            if text not in known:
                known[text] = len(tokenizer(text))
        return [known[text] for text in texts]

    def messages(self, messages: Sequence[ChatMessage], tokenizer: Tokenizer) -> list[int]:
        return self.texts([counted_text(message) for message in messages], tokenizer)

    def __deepcopy__(self, memo: dict[int, Any]) -> MessageCounter:
        return MessageCounter()


def counted_text(message: ChatMessage) -> str:
    """What of a message stands in a prompt: thoughts, content, and calls, which may be longer
    than any answer. Not its additional_kwargs."""
    parts = [message.content or ""]
    for block in message.blocks:
        if isinstance(block, ThinkingBlock):
            parts.append(block.content or "")
        elif isinstance(block, ToolCallBlock):
            parts.append(f"{block.tool_name} {json.dumps(block.tool_kwargs, default=str)}")
    return "\n".join(parts)

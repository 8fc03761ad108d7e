"""`as_chat_engine`: an index's chat engine in every mode, of this package where it has one."""

from __future__ import annotations

from typing import Any

from llama_index.core.chat_engine.types import BaseChatEngine, ChatMode
from llama_index.core.indices.base import BaseIndex
from llama_index.core.llms.utils import LLMType, resolve_llm

from cachefriendly_li.arguments import chosen_llm
from cachefriendly_li.chat_engine import SimpleChatEngine
from cachefriendly_li.condense import CondensePlusContextChatEngine
from cachefriendly_li.context_engine import ContextChatEngine

__all__ = ["as_chat_engine"]


def as_chat_engine(
    index: BaseIndex[Any],
    chat_mode: ChatMode = ChatMode.BEST,
    llm: LLMType | None = None,
    **kwargs: Any,
) -> BaseChatEngine:
    """What ``index.as_chat_engine(...)`` makes, with the engines of this package.

    The modes "simple", "context", "condense_plus_context" and "best" (the same) give their class
    of this package; ``layout=`` is passed on. "condense_question" sends no conversation to the
    LLM, so LlamaIndex's own engine is what there is to have, and for every other mode LlamaIndex
    raises its own error. An index with an `as_chat_engine` of its own makes its own engine.
    """
    ours = type(index).as_chat_engine is BaseIndex.as_chat_engine
    modes = (ChatMode.SIMPLE, ChatMode.CONTEXT, ChatMode.CONDENSE_PLUS_CONTEXT, ChatMode.BEST)
    if not ours or chat_mode not in modes:
        return index.as_chat_engine(chat_mode=chat_mode, llm=llm, **kwargs)
    chosen = chosen_llm(llm, kwargs)
    llm = resolve_llm(chosen, callback_manager=index._callback_manager) if llm else chosen
    if chat_mode == ChatMode.SIMPLE:
        return SimpleChatEngine.from_defaults(llm=llm, **kwargs)
    retriever = index.as_retriever(**kwargs)
    if chat_mode == ChatMode.CONTEXT:
        return ContextChatEngine.from_defaults(retriever, llm=llm, **kwargs)
    return CondensePlusContextChatEngine.from_defaults(retriever, llm=llm, **kwargs)

"""Arguments as LlamaIndex's classes take them: a wrong LLM is refused, ignored ones are named."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection
from difflib import get_close_matches
from typing import Any, Final

from llama_index.core.llms.llm import LLM
from llama_index.core.settings import Settings

from cachefriendly.errors import ConfigError

__all__ = ["chosen_llm", "warn_ignored_by_agent", "warn_ignored_by_engine"]

_log = logging.getLogger(__name__)

# Each is an argument of one chat engine; what else comes along may be for a retriever.
_OF_CHAT_ENGINES: Final = frozenset(
    {
        "condense_prompt",
        "context_prompt",
        "context_refine_prompt",
        "context_refine_template",
        "context_template",
        "memory_cls",
        "node_postprocessors",
        "prefix_messages",
        "skip_condense",
    }
)
_OF_RUN: Final = frozenset({"chat_history", "ctx", "max_iterations", "memory", "user_msg"})


def chosen_llm(llm: Any, others: Collection[str] = ()) -> LLM:
    """The LLM that was given, or LlamaIndex's default one.

    Args:
        others: names of further arguments.

    Raises:
        ConfigError: an engine stands where an LLM belongs.
    """
    given = type(llm).__name__ if hasattr(llm, "chat") and not _is_llm(llm) else None
    if given or "engine" in others:
        what = f"llm={given} is no LLM" if given else "engine= belongs to the LLM"
        raise ConfigError(f"{what}; give llm=CacheFriendlyLLM(engine=engine)")
    chosen: LLM = llm or Settings.llm
    return chosen


def warn_ignored_by_engine(options: Collection[str], maker: Callable[..., Any]) -> None:
    """Warn about arguments of other chat engines and about misspelt ones of this ``maker``."""
    known = inspect.signature(maker).parameters
    for name in sorted(set(options) - {"layout"}):
        meant = get_close_matches(name, known, n=1, cutoff=0.6 if name in _OF_CHAT_ENGINES else 0.8)
        if meant or name in _OF_CHAT_ENGINES:
            _warn(name, maker.__qualname__, f"did you mean {meant[0]}=?" if meant else "")


def warn_ignored_by_agent(options: Collection[str], known: Collection[str], agent: str) -> None:
    """Warn about every argument that is no field of the agent."""
    for name in sorted(set(options) - set(known)):
        meant = get_close_matches(name, known, n=1, cutoff=0.8)
        hint = f"did you mean {meant[0]}=?" if meant else ""
        _warn(name, agent, f"give it to run({name}=...)" if name in _OF_RUN else hint)


def _warn(name: str, where: str, hint: str) -> None:
    _log.warning("%s= has no effect in %s%s", name, where, f"; {hint}" if hint else "")


def _is_llm(value: Any) -> bool:
    # On the class: an LLM's metadata may read a checkpoint.
    return hasattr(type(value), "metadata")

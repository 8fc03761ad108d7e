"""What ``config={"configurable": ...}`` says about a call, carried to where the request is built.

LangChain hands ``configurable`` to graph nodes but not to the methods behind a direct
``model.invoke(..., config=...)``, so the public call forms set a context variable. A keyword
argument would do too, but it would enter traces and the key of LangChain's reply cache.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from cachefriendly.errors import RequestError

__all__ = [
    "CallScope",
    "aiterate_in",
    "current_namespace",
    "current_scope",
    "entered",
    "iterate_in",
    "scope_of",
]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CallScope:
    """Conversation and isolation of a call; None where the config says nothing."""

    session: str | None = None
    namespace: str | None = None


_SCOPE: ContextVar[CallScope | None] = ContextVar("cachefriendly_call_scope", default=None)


def scope_of(config: RunnableConfig | None) -> CallScope:
    """Read a config, merged with the one of the surrounding runnable or graph node."""
    configurable: dict[str, Any] = ensure_config(config).get("configurable") or {}
    adapter = configurable.get("adapter")
    if adapter is not None:
        raise RequestError(f"configurable adapter={adapter!r}: LoRA adapters are not supported yet")
    return CallScope(
        session=_text(configurable, "thread_id", (str, int, UUID)),
        namespace=_text(configurable, "cache_namespace", (str,)),
    )


def _text(configurable: dict[str, Any], key: str, kinds: tuple[type, ...]) -> str | None:
    value = configurable.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise RequestError(f"configurable {key}={value!r} is {type(value).__name__}; give a string")
    return str(value)


def current_scope() -> CallScope:
    """The scope of the call being made."""
    return _SCOPE.get() or scope_of(None)


def current_namespace(model: str) -> str:
    """The config's, else that of the model; an empty one is an answer, too."""
    given = current_scope().namespace
    return model if given is None else given


@contextmanager
def entered(scope: CallScope) -> Iterator[None]:
    token = _SCOPE.set(scope)
    try:
        yield
    finally:
        _SCOPE.reset(token)


def iterate_in(scope: CallScope, items: Iterator[_T]) -> Iterator[_T]:
    """Iterate with the scope set around each step only, so that it never leaks to the caller."""
    while True:
        with entered(scope):
            try:
                item = next(items)
            except StopIteration:
                return
        yield item


async def aiterate_in(scope: CallScope, items: AsyncIterator[_T]) -> AsyncIterator[_T]:
    """`iterate_in` for async iterators."""
    while True:
        with entered(scope):
            try:
                item = await anext(items)
            except StopAsyncIteration:
                return
        yield item

"""Who follows the calls of a chat model: a context variable that is set around them.

A middleware sees a model call from outside, before and after other middlewares changed it. Through
a listener it sees what the engine is really asked, and every event of the reply as it arrives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cachefriendly.events import ChatEvent
    from cachefriendly_lc.calls import PreparedCall

__all__ = ["Listener", "asked", "heard", "listening"]


class Listener(Protocol):
    """Both methods run in the thread or task that made the call, and never raise."""

    def asks(self, call: PreparedCall) -> PreparedCall:
        """A call is about to be made; returns it, perhaps in another layout."""
        ...

    def hears(self, call: PreparedCall, event: ChatEvent) -> None:
        """An event of the reply to ``call`` arrived. Several calls may be running."""
        ...


_LISTENERS: ContextVar[tuple[Listener, ...]] = ContextVar("cachefriendly_listeners", default=())


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Follow every call of a `ChatCacheFriendly` that is made inside the block."""
    token = _LISTENERS.set((*_LISTENERS.get(), listener))
    try:
        yield
    finally:
        _LISTENERS.reset(token)


def asked(call: PreparedCall) -> PreparedCall:
    """Tell the listeners of a call; the call as they want it made."""
    for listener in _LISTENERS.get():
        call = listener.asks(call)
    return call


def heard(call: PreparedCall, event: ChatEvent) -> None:
    """Tell the listeners of an event of a call, as `asked` returned it."""
    for listener in _LISTENERS.get():
        listener.hears(call, event)

"""What the middleware keeps in an agent's state: the ids of a thread's replies, and its layout.

Handles alone survive in the messages; what they stand for lives in one process. With a checkpointer
each reply's record is stored beside it, as text, so that a thread that goes on elsewhere has the
exact ids it had here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from cachefriendly.bounded import BoundedMap
from cachefriendly.errors import CacheFriendlyError
from cachefriendly_lc.delta import TurnsChannel

# Behind delta, which says what to install when it is missing.
from langchain.agents.middleware.types import AgentState, PrivateStateAttr  # isort: skip

if TYPE_CHECKING:
    from cachefriendly_lc.calls import PreparedCall

__all__ = ["LAYOUT", "TURNS", "CacheFriendlyState", "KnownTurns"]

TURNS, LAYOUT = "cachefriendly_turns", "cachefriendly_layout"

log = logging.getLogger(__name__)

_HANDLES_KEPT = 10_000


class CacheFriendlyState(AgentState[Any]):
    """The state of an agent with the middleware; its own part is private to it."""

    cachefriendly_turns: NotRequired[TurnsChannel]
    cachefriendly_layout: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


class KnownTurns:
    """Which turns this process has seen: those need neither be imported nor exported again."""

    def __init__(self) -> None:
        self._known: BoundedMap[tuple[str, str], bool] = BoundedMap(_HANDLES_KEPT)

    def take(self, call: PreparedCall, stored: Mapping[str, str]) -> None:
        """Import a thread's turns if the call's messages carry a handle that is new here."""
        namespace = call.request.namespace
        if self._new(namespace, (handle for handle in _handles(call) if handle in stored)):
            call.engine.import_turns(stored.values(), namespace=namespace)
            self._add(namespace, stored)

    def give(
        self, call: PreparedCall, reply: str | None, stored: Mapping[str, str]
    ) -> dict[str, str]:
        """What the state has to store after a call: its own turn, and those that led to it.

        Earlier replies may come from elsewhere, as when a thread begins with another's messages.
        """
        namespace = call.request.namespace
        turns = {}
        for handle in (*_handles(call), *((reply,) if reply else ())):
            text = None if handle in stored else _exported(call, handle)
            if text is not None:
                turns[handle] = text
        self._add(namespace, turns)
        return turns

    def _new(self, namespace: str, handles: Iterable[str]) -> bool:
        return any((namespace, handle) not in self._known for handle in handles)

    def _add(self, namespace: str, handles: Iterable[str]) -> None:
        for handle in handles:
            self._known.put((namespace, handle), True)


def _exported(call: PreparedCall, handle: str) -> str | None:
    try:
        return call.engine.export_turn(handle, namespace=call.request.namespace)
    except CacheFriendlyError as error:
        # Only the kind of error: its text may quote what the user wrote.
        log.debug("a turn could not be stored: %s", type(error).__name__)
        return None


def _handles(call: PreparedCall) -> list[str]:
    return [message.handle for message in call.request.messages if message.handle]

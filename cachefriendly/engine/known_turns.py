"""Which recorded calls an engine was given already, when they are kept with a conversation.

Handles alone travel with a framework's messages; what they stand for lives in one process. Who
stores the exported turns beside the messages gives them back when a handle is new here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from cachefriendly.bounded import BoundedMap

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine

__all__ = ["KnownTurns"]

_HANDLES_KEPT = 10_000


class KnownTurns:
    """Turns that were taken or given here, also those that were refused. Thread safe."""

    def __init__(self) -> None:
        self._known: BoundedMap[tuple[str, str], bool] = BoundedMap(_HANDLES_KEPT)

    def take(
        self,
        engine: Engine,
        handles: Iterable[str],
        stored: Callable[[], Iterable[str]],
        *,
        namespace: str,
    ) -> None:
        """Import a conversation's turns if one of its ``handles`` is new here.

        ``stored`` gives their texts; it is asked only then.
        """
        new = [handle for handle in handles if (namespace, handle) not in self._known]
        if new:
            engine.import_turns(stored(), namespace=namespace)
            self._add(namespace, new)

    def give(
        self,
        engine: Engine,
        handles: Iterable[str],
        stored: Collection[str] = (),
        *,
        namespace: str,
    ) -> dict[str, str]:
        """What has to be stored of these calls: text by handle, without those that are already."""
        texts = {
            handle: text
            for handle in handles
            if handle not in stored
            and (text := engine.export_turn(handle, namespace=namespace)) is not None
        }
        self._add(namespace, texts)
        return texts

    def _add(self, namespace: str, handles: Iterable[str]) -> None:
        for handle in handles:
            self._known.put((namespace, handle), True)

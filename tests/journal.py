"""A journal of what tools did, and an engine whose reply ends when it says so."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from cachefriendly.events import ChatEvent
from cachefriendly.messages import Message
from cachefriendly.testing import ScriptedEngine
from cachefriendly.testing.engine_double import ScriptedCall

__all__ = ["Journal", "SlowEngine"]


class Journal:
    """What happened, in order, from whichever thread."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self._changed = threading.Condition()

    def write(self, entry: str) -> None:
        with self._changed:
            self.entries.append(entry)
            self._changed.notify_all()

    def wait_for(self, entry: str, timeout: float = 5.0) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: entry in self.entries, timeout)


class SlowEngine(ScriptedEngine):
    """Ends a reply only when all of ``awaited`` stands in the journal: its calls are read before.

    With a tool that starts after the turn it would wait in vain, so it gives up after a while.
    """

    def __init__(self, journal: Journal, *replies: str | Message, awaited: Sequence[str]) -> None:
        super().__init__(*replies)
        self._journal, self._awaited = journal, awaited

    def _call(self, events: Sequence[ChatEvent], timeout: float | None) -> ScriptedCall:
        call = super()._call(events, timeout)
        if len(events) > 1 and len(self.requests) == 1 and not self.prefills:
            _hold_back_the_end(call, self._journal, self._awaited)
        return call


def _hold_back_the_end(call: ScriptedCall, journal: Journal, awaited: Sequence[str]) -> None:
    playback = call._playback
    last = playback._items.pop()

    def end() -> None:
        for entry in awaited:
            journal.wait_for(entry, 2.0)
        journal.write("reply ends")
        playback.put(last)

    threading.Thread(target=end, daemon=True).start()

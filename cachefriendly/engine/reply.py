"""Turns a row's ids into chat events and, at its end, into the finished result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from cachefriendly.events import ChatEvent, ChatResult, Finished
from cachefriendly.rows import Maker, RowDone, RowEvent, RowTokens
from cachefriendly.tools.stream import ParsedReply, ReplyParser

__all__ = ["Decoder", "Reply"]


class Decoder(Protocol):
    """Incremental ids -> text."""

    def push(self, ids: tuple[int, ...]) -> str: ...

    def flush(self) -> str: ...


class Reply:
    """One reply while it arrives. Runs in the caller's thread: the engine thread only chooses ids.

    ``finish`` builds the result of a row that ended; ``leave`` records one that was left early.
    """

    def __init__(
        self,
        decoder: Decoder,
        parser: ReplyParser,
        finish: Callable[[RowDone, ParsedReply], ChatResult],
        leave: Callable[[tuple[int, ...], ParsedReply, Maker], None],
    ) -> None:
        self._decoder = decoder
        self._parser = parser
        self._finish = finish
        self._leave = leave
        self._ids: tuple[int, ...] = ()
        self._maker = Maker()
        self.result: ChatResult | None = None
        self._left = False

    def events(self, event: RowEvent) -> Iterator[ChatEvent]:
        """The chat events that one row event gives rise to."""
        if isinstance(event, RowTokens):
            self._ids += event.ids
            self._maker = event.maker
            yield from self._parser.feed(self._decoder.push(event.ids))
            return
        yield from self._parser.feed(self._decoder.flush() + event.stop_text)
        parsed = self._parser.finish()
        self.result = self._finish(event, parsed)
        yield from parsed.tail_events
        yield Finished(self.result)

    def abandon(self) -> None:
        """The caller left early: what was delivered so far is what history will show."""
        if self.result is not None or self._left:
            return
        self._left = True
        if self._ids:
            self._parser.feed(self._decoder.flush())
            self._leave(self._ids, self._parser.finish(), self._maker)

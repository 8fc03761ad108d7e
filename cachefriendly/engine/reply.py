"""Turns a row's ids into chat events and, at its end, into the finished result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from cachefriendly.events import ChatEvent, ChatResult, Finished, RawDelta, ToolCallReady
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
        *,
        one_call: bool = False,
        raw: bool = False,
    ) -> None:
        """``one_call``: the reply ends behind its first tool call, whatever is generated then.

        ``raw``: its text is told as it is generated, too.
        """
        self._decoder = decoder
        self._parser = parser
        self._finish = finish
        self._leave = leave
        self._ids: tuple[int, ...] = ()
        self._maker = Maker()
        self.result: ChatResult | None = None
        self._left = False
        self._one_call = one_call
        self._raw = raw
        self._first: ParsedReply | None = None  # what the reply was when its first call closed

    @property
    def enough(self) -> bool:
        """The reply is complete, though its row may still run."""
        return self._first is not None

    def events(self, event: RowEvent) -> Iterator[ChatEvent]:
        """The chat events that one row event gives rise to."""
        if isinstance(event, RowTokens):
            self._maker = event.maker
            # One by one only where the reply may end between two of them.
            pieces = [(token,) for token in event.ids] if self._one_call else [event.ids]
            for ids in pieces:
                if not self.enough:
                    yield from self._read(ids)
            return
        if self._first is not None:
            done = replace(event, output_ids=self._ids, stop_text="")
            self.result = self._finish(done, self._first)
            yield Finished(self.result)
            return
        yield from self._parser.feed(self._decoder.flush() + event.stop_text)
        parsed = self._parser.finish()
        self.result = self._finish(event, parsed)
        yield from parsed.tail_events
        yield Finished(self.result)

    def _read(self, ids: tuple[int, ...]) -> Iterator[ChatEvent]:
        self._ids += ids
        text = self._decoder.push(ids)
        if self._raw and text:
            yield RawDelta(text)
        events = self._parser.feed(text)
        if self._one_call and any(isinstance(event, ToolCallReady) for event in events):
            self._first = self._parser.finish()
        yield from events

    def abandon(self) -> None:
        """The caller left early: what was delivered so far is what history will show."""
        if self.result is not None or self._left:
            return
        self._left = True
        if self._first is not None:
            self._leave(self._ids, self._first, self._maker)
        elif self._ids:
            self._parser.feed(self._decoder.flush())
            self._leave(self._ids, self._parser.finish(), self._maker)

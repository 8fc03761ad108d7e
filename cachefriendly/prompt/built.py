"""A finished prompt: ids, text, where each part came from, and what `commit` needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from cachefriendly.events import Loss
from cachefriendly.prompt.bindings import Bound
from cachefriendly.prompt.chain import Link
from cachefriendly.prompt.inputs import InputDigests
from cachefriendly.prompt.record import PromptBase, Record

__all__ = ["BuiltPrompt", "Circumstances", "PromptSpan", "Provenance"]


@dataclass(frozen=True, slots=True)
class PromptSpan:
    """Tokens ``[start, stop)``: written by the template, or recorded when they were generated.

    ``message_index`` is the message a recorded or rewritten reply belongs to; None for text that
    spans several messages.
    """

    start: int
    stop: int
    message_index: int | None
    source: Literal["template", "recorded"]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a prompt was made from, as far as it explains a loss or names a call.

    ``moment`` is what ``strftime_now`` prints, if the template prints the time at all. ``bound``
    are the values of anchors before the newest user message, of a request that has any.
    """

    links: tuple[Link, ...]
    inputs: InputDigests
    moment: datetime
    prints_time: bool
    fingerprint: str
    session: str | None = None
    bound: Bound | None = None


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a record of this call will say about its prompt (see `Record`).

    ``parent`` is the known call this prompt has most in common with, ``shared`` how many tokens;
    it may be 0.
    """

    parent: Record | None
    shared: int
    generation_prompt: str
    base: PromptBase
    circumstances: Circumstances


@dataclass(frozen=True, slots=True)
class BuiltPrompt:
    """What goes to the runner, and why it is what it is.

    ``reasoning_open``: the generation prompt opens a block of reasoning and leaves it open.
    ``losses`` name tokens of the previous call that this prompt could not keep.
    ``snapshots_at``: lengths at which later prompts are likely to part from this one.
    ``dropped`` messages of the request were left out to fit the context window.
    ``prefix_tokens`` come before the text of the first message that is no system message; 0 where
    that cannot be told.
    """

    ids: tuple[int, ...]
    text: str = field(repr=False)
    spans: tuple[PromptSpan, ...] = field(repr=False)
    namespace: str
    provenance: Provenance = field(repr=False)
    reasoning_open: bool = False
    losses: tuple[Loss, ...] = ()
    dropped: int = 0
    snapshots_at: tuple[int, ...] = ()
    prefix_tokens: int = 0

    @property
    def moment(self) -> datetime:
        """What the template took for now; store it where the conversation outlives the process."""
        return self.provenance.circumstances.moment

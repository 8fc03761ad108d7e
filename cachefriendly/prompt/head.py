"""How many tokens a prompt has before the text of its first message that is no system message."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import takewhile
from typing import TypeAlias

from cachefriendly.bounded import BoundedMap
from cachefriendly.errors import TemplateError
from cachefriendly.messages import Message
from cachefriendly.prompt.inputs import InputDigests
from cachefriendly.prompt.rendering import Rendering

__all__ = ["PrefixLengths"]

_Key: TypeAlias = tuple[str, InputDigests, datetime | None]
_KEPT = 10_000
_MARK = "\U0010fffd"


class PrefixLengths:
    """Computed once for equal system messages, tools and template arguments. Thread safe."""

    def __init__(self) -> None:
        self._lengths: BoundedMap[_Key, int] = BoundedMap(_KEPT)

    def of(self, rendering: Rendering, messages: Sequence[Message], inputs: InputDigests) -> int:
        """The length for a request whose ``messages`` are disguised; 0: it cannot be told."""
        source = rendering.prepared.template.source
        key = (source, inputs, rendering.moment if "strftime_now" in source else None)
        length = self._lengths.get(key)
        if length is None:
            length = _length(rendering, messages)
            self._lengths.put(key, length)
        return length


def _length(rendering: Rendering, messages: Sequence[Message]) -> int:
    system = takewhile(lambda message: message.role == "system", messages)
    try:
        text = rendering.render([*system, Message("user", _MARK)], add_generation_prompt=False)
    except TemplateError:
        return 0
    prefix, found, _ = text.partition(_MARK)
    if not found:
        return 0
    reveal = rendering.disguise.reveal if rendering.disguise else None
    return len(rendering.prepared.tokens.encode(prefix, reveal=reveal))

"""Read calls whose arguments stand one by one between tags; the schemas say their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cachefriendly.messages import Tool
from cachefriendly.tools.call_json import BrokenCall, read_call
from cachefriendly.tools.marked import MarkedParser
from cachefriendly.tools.stream import THINK, Reasoning
from cachefriendly.tools.tag_text import TagText
from cachefriendly.tools.typed import argument_schema, typed_value

__all__ = ["TaggedParser"]


class TaggedParser(MarkedParser):
    """A block ends at its closing text, unless an argument is open there and closed behind it.

    Values are not escaped, so a value ends at the first closing tag that more structure follows.
    """

    def __init__(
        self,
        text: TagText,
        tools: Sequence[Tool],
        *,
        id_seed: str,
        drops: Sequence[str] = (),
        reasoning: Reasoning | None = THINK,
        reasoning_open: bool = False,
    ) -> None:
        opens = [text.opens] if text.opens == text.call_open else [text.opens, text.call_open]
        super().__init__(
            id_seed=id_seed,
            opens=[opening for opening in opens if opening],
            drops=drops,
            reasoning=reasoning,
            reasoning_open=reasoning_open,
        )
        self._form = text
        self._schemas = {tool.name: tool.parameters for tool in tools}
        self._call_head = text.call_pattern()
        self._argument = text.argument_pattern()

    def _call(self, final: bool) -> bool:
        close = self._form.closes if self._opened == self._form.opens else self._form.call_end
        close = close.strip()
        at = self._pending.find(close)
        while at >= 0 and self._inside_argument(self._pending, at):
            at = self._pending.find(close, at + 1)
        if at < 0 and not final:
            return False
        if at < 0 and self._form.opens == self._opened:
            at = self._pending.find(close)
        stop = len(self._pending) if at < 0 else at + len(close)
        self._read_block((self._opened or "") + self._pending[:stop], whole=at >= 0)
        self._pending = self._pending[stop:]
        self._opened = None
        return True

    def _inside_argument(self, text: str, at: int) -> bool:
        """Whether an argument's value is open at ``at``."""
        key = text.rfind(self._form.key_open, 0, at)
        return key >= 0 and text.find(self._form.value_end.strip(), key, at) < 0

    def _read_block(self, block: str, *, whole: bool) -> None:
        """The calls of a block; what no call can be made of is one broken call."""
        body = block
        if self._form.begin and block.startswith(self._form.opens):
            body = block[len(self._form.opens) :]
        body = body.removesuffix(self._form.end.strip()) if self._form.end else body
        if not self._form.call_open:
            self._emit(lambda: self._read_text(body, whole=whole), block, whole=whole)
            return
        starts = [found.start() for found in self._call_head.finditer(body)]
        starts = [at for at in starts if not self._inside_argument(body, at)]
        if not starts:
            self._emit(lambda: read_call(body), block, whole=whole)
            return
        self._emit_text(body[: starts[0]].strip())
        for start, stop in zip(starts, [*starts[1:], len(body)], strict=True):
            text = body[start:stop]
            complete = whole or self._form.call_end.strip() in text
            self._emit_text_call(text, complete)

    def _emit_text_call(self, text: str, whole: bool) -> None:
        self._emit(lambda: self._read_text(text, whole=whole), text, whole=whole)

    def _read_text(self, text: str, *, whole: bool) -> tuple[str, Mapping[str, Any]]:
        """The call that begins ``text``."""
        head = self._call_head.match(text)
        if head is None:
            raise BrokenCall("no name of a tool stands in the call")
        name = head[1]
        rest = text[head.end() :].rstrip()
        end = self._form.call_end.strip()
        rest = rest.removesuffix(end) if end else rest
        schema = self._schemas.get(name, {})
        arguments: dict[str, Any] = {}
        for found in self._argument.finditer(rest):
            key, value = found[1].strip(), found[2]
            if self._form.swallows(value):
                raise BrokenCall(f"argument {key!r} is not closed", name)
            wanted = argument_schema(schema, key)
            arguments[key] = typed_value(self._form.value(value), wanted, schema)
        if not whole or self._argument.sub("", rest).strip():
            raise BrokenCall("an argument or the call is not closed", name)
        return name, arguments

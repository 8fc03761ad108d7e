"""The dialect of gpt-oss: a reply is several messages, each with a header that says what it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from cachefriendly.messages import Tool
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.call_json import BrokenCall, read_arguments
from cachefriendly.tools.call_text import CallText
from cachefriendly.tools.grammar import calls_grammar
from cachefriendly.tools.json_body import JsonBody
from cachefriendly.tools.native import FormDialect
from cachefriendly.tools.stream import Reasoning, ReplyParser, held_back

__all__ = ["HarmonyDialect", "HarmonyParser"]

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
ENDS = (END, CALL, RETURN)
MARKERS = (START, CHANNEL, CONSTRAIN, MESSAGE, *ENDS)
_ANALYSIS, _NAMESPACE = "analysis", "functions."
_MARKER = re.compile("|".join(map(re.escape, MARKERS)))
_RECIPIENT = re.compile(r"(?:^|\s)to=(\S*)")
_PEOPLE = frozenset({"assistant", "user", "all"})
# How the header that the prompt began may go on: a recipient, and perhaps a type.
_OPEN_HEADER = re.compile(r"\s*(?:t|to|to=\S*|to=\S+\s+\w*\s*)?")

_TEXT = CallText(
    before_name=f"{CHANNEL}commentary to={_NAMESPACE}",
    after_name=f" {CONSTRAIN}json{MESSAGE}",
    between=f"{END}{START}assistant",
)

Kind: TypeAlias = Literal["content", "reasoning", "call"]


@dataclass(frozen=True, kw_only=True)
class HarmonyDialect(FormDialect):
    """Channel ``analysis`` is reasoning, ``final`` and words in ``commentary`` are content.

    A message with a recipient is a call. The generation prompt (``<|start|>assistant``) ends
    inside the header of the first message, so a reply begins there.
    """

    reasoning: Reasoning | None = None

    name: str = "harmony"
    tells: tuple[str, ...] = (START, CHANNEL, MESSAGE, CALL)
    text: CallText = _TEXT
    structure: tuple[str, ...] = MARKERS
    stops: tuple[str, ...] = (CALL, RETURN)

    def parser(
        self, *, id_seed: str, tools: Sequence[Tool] = (), reasoning_open: bool = False
    ) -> HarmonyParser:
        return HarmonyParser(id_seed=id_seed, reasoning_open=reasoning_open)

    def text_parser(self, *, id_seed: str, reasoning_open: bool = False) -> HarmonyParser:
        """Such a reply has channels too. A call in it is data, but none that could be made."""
        return HarmonyParser(id_seed=id_seed, reasoning_open=reasoning_open, calls=False)

    def opens_reasoning(self, prompt: str) -> bool:
        """Whether the last message of the prompt is analysis that goes on."""
        header, opened, body = prompt.rpartition(START)[2].partition(MESSAGE)
        return bool(opened) and _ANALYSIS in header and not any(end in body for end in ENDS)

    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec:
        """The call ends with its arguments: the token behind them ends the reply."""
        return calls_grammar(tools, _TEXT, markers=self.structure, many=many)


class Header:
    """The header of a message while it arrives.

    ``opened``: the prompt began it, so that its text does not start with a role.
    """

    def __init__(self, raw: str = "", *, opened: bool = False) -> None:
        self.raw = raw
        self.opened = opened
        self._part = raw
        self._texts = {START: "", CHANNEL: "", CONSTRAIN: "", "": ""}

    def take(self, text: str) -> None:
        self.raw += text
        self._texts[self._part] += text

    def begin_part(self, marker: str) -> None:
        self.raw += marker
        self._part = marker

    @property
    def is_text(self) -> bool:
        """A reply began with words where the prompt's header should have gone on."""
        return self.opened and not self._part and not _OPEN_HEADER.fullmatch(self._texts[""])

    @property
    def recipient(self) -> str | None:
        """Who gets the message, if that is a tool."""
        for part in (CHANNEL, START, ""):
            found = _RECIPIENT.search(self._texts[part])
            if found and found[1] not in _PEOPLE:
                return found[1]
        return None

    @property
    def kind(self) -> Kind:
        if self.recipient is not None:
            return "call"
        return "reasoning" if self._texts[CHANNEL].split()[:1] == [_ANALYSIS] else "content"

    @property
    def words(self) -> str:
        """What a header that no message followed says beside role, channel and type."""
        said = [self._texts[""].strip()]
        said += [self._texts[part].strip().partition(" ")[2] for part in (START, CHANNEL)]
        return " ".join(text for text in said if text)


class HarmonyParser(ReplyParser):
    """Follows the messages of a reply; messages of one kind are parted by a blank line.

    A reply that begins with words instead of a header is content, and so is text between
    messages. A message that lacks its end is ended by the next header.
    """

    def __init__(self, *, id_seed: str, reasoning_open: bool = False, calls: bool = True) -> None:
        super().__init__(id_seed=id_seed, reasoning=None)
        self._may_call = calls
        self._header: Header | None = None if reasoning_open else Header(opened=True)
        self._kind: Literal["content", "reasoning", "between"] = "reasoning"
        self._new_message = False
        self._call: tuple[Header, JsonBody] | None = None

    def _answer(self, final: bool) -> None:
        more = True
        while more:
            more = self._read_call(final) if self._call else self._read_text(final)
        if final and self._header is not None:
            self._leave(self._header, whole=False)

    def _read_text(self, final: bool) -> bool:
        """Take what stands before the next marker, and the marker; False when there is none."""
        found = _MARKER.search(self._pending)
        held = 0 if found or final else held_back(self._pending, *MARKERS)
        stop = found.start() if found else len(self._pending) - held
        text = self._pending[:stop]
        self._pending = self._pending[found.end() if found else stop :]
        self._take(text)
        if found:
            self._take_marker(found.group())
        return found is not None

    def _take(self, text: str) -> None:
        if self._header is None:
            self._give(text)
            return
        self._header.take(text)
        if self._header.is_text:
            text, self._header, self._kind = self._header.raw, None, "content"
            self._give(text)

    def _take_marker(self, marker: str) -> None:
        header = self._header
        if header is not None and marker in (CHANNEL, CONSTRAIN):
            header.begin_part(marker)
        elif header is not None and marker == MESSAGE:
            header.raw += marker
            self._enter(header)
        elif marker in (START, CHANNEL, *ENDS):
            if header is not None:
                self._leave(header)
            self._header = None if marker in ENDS else Header(marker)
            self._kind, self._new_message = "between", True

    def _enter(self, header: Header) -> None:
        """The body of the message begins."""
        kind, self._header, self._new_message = header.kind, None, True
        if kind == "call":
            self._call = header, JsonBody(ENDS, (START,))
        else:
            self._kind = kind

    def _leave(self, header: Header, *, whole: bool = True) -> None:
        """No message follows the header."""
        self._header = None
        if header.recipient is not None:
            self._emit(lambda: _read(header, ""), header.raw, whole=whole)
        else:
            self._kind = "content"
            self._give(header.words)

    def _give(self, text: str) -> None:
        """Text of the current message, or between messages, where whitespace says nothing."""
        if self._kind == "between":
            text = text.lstrip()
        if not text:
            return
        self._kind = "content" if self._kind == "between" else self._kind
        said = self._reasoning if self._kind == "reasoning" else self._content
        if self._new_message and said:
            text = "\n\n" + text
        self._new_message = False
        if self._kind == "reasoning":
            self._emit_reasoning(text)
        else:
            self._emit_text(text)

    def _read_call(self, final: bool) -> bool:
        assert self._call is not None
        header, body = self._call
        end = body.find(self._pending, final)
        if end is None:
            return False
        text, raw = self._pending[: end.body], header.raw + self._pending[: end.call]
        self._pending = self._pending[end.call :]
        self._call, self._kind = None, "between"
        refusal = None if self._may_call else "the reply calls a tool, but none may be called"
        self._emit(lambda: _read(header, text, refusal), raw, whole=end.whole)
        return True


def _read(header: Header, body: str, refusal: str | None = None) -> tuple[str, Mapping[str, Any]]:
    name = (header.recipient or "").removeprefix(_NAMESPACE)
    if refusal or not name:
        raise BrokenCall(refusal or "the call names no tool", name or None)
    if not header.raw.endswith(MESSAGE):
        raise BrokenCall(f"{MESSAGE} is missing behind the header", name)
    return name, read_arguments(body, name)

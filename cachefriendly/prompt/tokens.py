"""Text to ids and back on frozen clones of the user's tokenizer, stretch by stretch.

A stretch is text between two control tokens. Tokenizers never merge over an added token, so the
ids of a text are the ids of its stretches, and a memo makes a long unchanged history cheap.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from cachefriendly.errors import ControlTokenError
from cachefriendly.prompt.codec import codec_for
from cachefriendly.prompt.control import ControlSet

__all__ = ["StretchMemo", "TextTokenizer"]

Reveal: TypeAlias = Callable[[str], str]
_MEMO_TOKENS = 2_000_000
_UNKNOWN = "\U0010ffff"  # no character: in no vocabulary, except as bytes


class StretchMemo:
    """Ids by stretch, least recently used out first, bounded by the number of ids. Thread safe."""

    def __init__(self, max_tokens: int = _MEMO_TOKENS) -> None:
        self.max_tokens = max_tokens
        self.held_tokens = 0
        self._ids: OrderedDict[tuple[str, bool], tuple[int, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._ids)

    def get(self, key: tuple[str, bool]) -> tuple[int, ...] | None:
        with self._lock:
            ids = self._ids.get(key)
            if ids is not None:
                self._ids.move_to_end(key)
            return ids

    def put(self, key: tuple[str, bool], ids: tuple[int, ...]) -> None:
        """An entry costs its ids plus one, so that empty results are bounded too."""
        with self._lock:
            if key in self._ids or len(ids) >= self.max_tokens:
                return
            self._ids[key] = ids
            self.held_tokens += len(ids) + 1
            while self.held_tokens > self.max_tokens:
                _, dropped = self._ids.popitem(last=False)
                self.held_tokens -= len(dropped) + 1


class TextTokenizer:
    """Tokenizes rendered prompts; holds clones, never touches the user's tokenizer again.

    ``probes`` are rendered texts. When the stretches of one of them do not add up to the whole,
    ``whole_text`` is true: a text is encoded in one piece wherever nothing in it was disguised.
    """

    def __init__(
        self,
        tokenizer: Any,
        controls: ControlSet,
        *,
        probes: Iterable[str] = (),
        memo: StretchMemo | None = None,
    ) -> None:
        self.controls = controls
        self._memo = StretchMemo() if memo is None else memo
        self._codec = codec_for(tokenizer, controls)
        self._structure = controls.ids - self._unknown(tokenizer)
        self.context = self._decoding_context()
        self.whole_text = not all(self.adds_up(text) for text in probes)

    @property
    def digest(self) -> bytes:
        """Names the tokenizer; see `tokenizer_digest`."""
        return self._codec.digest

    def adds_up(self, text: str) -> bool:
        """Whether the ids of the stretches of ``text`` are the ids of the whole."""
        return self._encode_stretches(text, True, None) == self._codec.encode_whole(text)

    def encode(
        self, text: str, *, at_start: bool = True, reveal: Reveal | None = None
    ) -> list[int]:
        """Ids of rendered text: control tokens in it are structure.

        ``reveal`` undoes a disguise inside each stretch, after the text was split.
        """
        if self.whole_text and reveal is None:
            return self._codec.encode_whole(text)
        return self._encode_stretches(text, at_start, reveal)

    def _encode_stretches(self, text: str, at_start: bool, reveal: Reveal | None) -> list[int]:
        ids: list[int] = []
        for piece, control_id in self.controls.split(text):
            if control_id is not None:
                ids.append(control_id)
                continue
            stretch = piece if reveal is None else reveal(piece)
            ids.extend(self.encode_stretch(stretch, first=at_start and not ids))
        return ids

    def encode_stretch(self, text: str, *, first: bool = False) -> tuple[int, ...]:
        """Ids of text without structure; a control token spelled in it stays text.

        Raises:
            ControlTokenError: the vocabulary spells a control token from plain text, in pieces too.
        """
        key = (text, first)
        ids = self._memo.get(key)
        if ids is None:
            ids = tuple(self._codec.encode_stretch(text, first))
            if not self._structure.isdisjoint(ids):
                ids = self._encode_cut(text, first)
            self._memo.put(key, ids)
        return ids

    def _encode_cut(self, text: str, first: bool) -> tuple[int, ...]:
        ids: list[int] = []
        for piece in self.controls.cut(text):
            ids.extend(self._codec.encode_stretch(piece, first and not ids))
        if not self._structure.isdisjoint(ids):
            spelled = self.controls.find(text) or [text[:40]]
            raise ControlTokenError(
                f"{spelled[0]!r} cannot be sent as text: this tokenizer makes the control token "
                "of it even in pieces; remove it from the message"
            )
        return tuple(ids)

    def count(self, text: str) -> int:
        """How many ids a text without structure has; lone surrogates count as one character."""
        text = text.encode("utf-8", "replace").decode()
        return len(self._codec.encode_stretch(text, False))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids``, control tokens included."""
        return self._codec.decode(ids)

    def decode_after(self, ids: Sequence[int]) -> str:
        """Text of ``ids`` as a continuation: a space that starts it is kept."""
        if not self.context:
            return self.decode(ids)
        return self.decode([*self.context, *ids])[len(self.decode(self.context)) :]

    def _unknown(self, tokenizer: Any) -> set[int]:
        """What characters outside the vocabulary become, if that ends or begins nothing.

        It is flagged special, but ordinary text yields it: it can be no structure.
        """
        ends = {tokenizer.eos_token_id, tokenizer.bos_token_id}
        return set(self._codec.encode_stretch(_UNKNOWN, False)) - ends

    def _decoding_context(self) -> tuple[int, ...]:
        """Ids to decode in front, for decoders that strip the space of the first word."""
        word = tuple(self._codec.encode_stretch("a", first=True))
        spaced = self._codec.encode_stretch(" a", first=False)
        return () if self.decode(spaced) == " a" else word

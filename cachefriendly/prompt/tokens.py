"""Text to ids and back on frozen clones of the user's tokenizer, stretch by stretch.

A stretch is text between two control tokens. Tokenizers never merge over an added token, so the
ids of a text are the ids of its stretches, and a memo makes a long unchanged history cheap.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tokenizers import Tokenizer

from cachefriendly.errors import ControlTokenError
from cachefriendly.prompt.control import ControlSet

__all__ = ["StretchMemo", "TextTokenizer"]

Reveal: TypeAlias = Callable[[str], str]
_MEMO_TOKENS = 2_000_000


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

    ``whole_text`` is set by `check` when stretches do not add up to the whole text; then a text is
    encoded in one piece wherever nothing in it was disguised.
    """

    def __init__(
        self, tokenizer: Any, controls: ControlSet, memo: StretchMemo | None = None
    ) -> None:
        self.controls = controls
        self.whole_text = False
        self._memo = StretchMemo() if memo is None else memo
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._codec: _FastCodec | _SlowCodec = (
            _FastCodec(backend, controls)
            if isinstance(backend, Tokenizer)
            else _SlowCodec(tokenizer)
        )
        self.context = self._decoding_context()

    def check(self, text: str) -> bool:
        """Whether stretches give the ids of the whole ``text``; remembers a no."""
        if self.encode(text) != list(self._codec.encode_whole(text)):
            self.whole_text = True
        return not self.whole_text

    def encode(
        self, text: str, *, at_start: bool = True, reveal: Reveal | None = None
    ) -> list[int]:
        """Ids of rendered text: control tokens in it are structure.

        ``reveal`` undoes a disguise inside each stretch, after the text was split.
        """
        if self.whole_text and reveal is None:
            return list(self._codec.encode_whole(text))
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
            if not self.controls.ids.isdisjoint(ids):
                ids = self._encode_cut(text, first)
            self._memo.put(key, ids)
        return ids

    def _encode_cut(self, text: str, first: bool) -> tuple[int, ...]:
        ids: list[int] = []
        for piece in self.controls.cut(text):
            ids.extend(self._codec.encode_stretch(piece, first and not ids))
        if not self.controls.ids.isdisjoint(ids):
            spelled = self.controls.find(text) or [text[:40]]
            raise ControlTokenError(
                f"{spelled[0]!r} cannot be sent as text: this tokenizer makes the control token "
                "of it even in pieces; remove it from the message"
            )
        return tuple(ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids``, control tokens included."""
        return self._codec.decode(ids)

    def decode_after(self, ids: Sequence[int]) -> str:
        """Text of ``ids`` as a continuation: a space that starts it is kept."""
        if not self.context:
            return self.decode(ids)
        return self.decode([*self.context, *ids])[len(self.decode(self.context)) :]

    def _decoding_context(self) -> tuple[int, ...]:
        """Ids to decode in front, for decoders that strip the space of the first word."""
        word = tuple(self._codec.encode_stretch("a", first=True))
        spaced = self._codec.encode_stretch(" a", first=False)
        return () if self.decode(spaced) == " a" else word


class _FastCodec:
    """Clones of a `tokenizers.Tokenizer`; frozen ones are safe to share without a lock."""

    def __init__(self, backend: Tokenizer, controls: ControlSet) -> None:
        state = backend.to_str()
        self._whole = _frozen(state)
        plain = json.loads(state)
        kept = [t for t in plain["added_tokens"] if t["content"] not in controls.by_text]
        plain["added_tokens"] = kept
        # A post-processor may name control tokens that are gone now, and must add nothing anyway.
        plain["post_processor"] = None
        self._first = _frozen(json.dumps(plain))
        later = _never_prepend(plain)
        self._later = self._first if later is None else _frozen(json.dumps(later))
        # Added tokens are numbered anew when a tokenizer is read and some before them are gone.
        numbers = {self._first.token_to_id(t["content"]): t["id"] for t in kept}
        self._renumbered = {new: old for new, old in numbers.items() if new != old}

    def encode_whole(self, text: str) -> list[int]:
        return self._whole.encode(text, add_special_tokens=False).ids

    def encode_stretch(self, text: str, first: bool) -> list[int]:
        codec = self._first if first else self._later
        ids = codec.encode(text, add_special_tokens=False).ids
        if self._renumbered:
            return [self._renumbered.get(i, i) for i in ids]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._whole.decode(list(ids), skip_special_tokens=False)


class _SlowCodec:
    """A tokenizer written in Python: one lock around each whole call."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()

    def encode_whole(self, text: str) -> list[int]:
        with self._lock:
            return list(self._tokenizer.encode(text, add_special_tokens=False))

    def encode_stretch(self, text: str, first: bool) -> list[int]:
        return self.encode_whole(text)

    def decode(self, ids: Sequence[int]) -> str:
        with self._lock:
            return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))


def _frozen(state: str) -> Tokenizer:
    clone = Tokenizer.from_str(state)
    clone.no_truncation()
    clone.no_padding()
    return clone


def _never_prepend(state: dict[str, Any]) -> dict[str, Any] | None:
    """The same tokenizer for text that does not start the prompt; None when it is no other.

    Metaspace with scheme ``first`` adds a space at offset 0 of what it is given; in the whole text
    only the first stretch lies there. Other schemes treat every stretch alike already.
    """
    copy: dict[str, Any] = json.loads(json.dumps(state))
    outer = copy.get("pre_tokenizer") or {}
    found = False
    for part in [outer, *outer.get("pretokenizers", [])]:
        if part.get("type") == "Metaspace" and part.get("prepend_scheme") == "first":
            part["prepend_scheme"] = "never"
            found = True
    return copy if found else None

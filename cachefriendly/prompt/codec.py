"""Clones of the user's tokenizer: whole texts, stretches without structure, ids back to text."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

from tokenizers import Tokenizer

from cachefriendly.prompt.control import ControlSet

__all__ = ["Codec", "codec_for"]

# Characters that are encoded within the 20 ms that nobody misses.
_UNDER_GIL = 8192


class Codec(Protocol):
    """Encoding and decoding that nobody else can change. Thread safe."""

    def encode_whole(self, text: str) -> list[int]:
        """Ids as the user's tokenizer gives them; control tokens are structure."""

    def encode_stretch(self, text: str, first: bool) -> list[int]:
        """Ids of text that holds no structure; ``first``: it starts the prompt."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids``, control tokens included."""


def codec_for(tokenizer: Any, controls: ControlSet) -> Codec:
    """Clones where the tokenizer can be cloned, else the tokenizer itself behind a lock."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        return _SlowCodec(tokenizer)
    state = backend.to_str()
    key = blake2b(repr((state, sorted(controls.by_text))).encode()).digest()
    codec = _shared.get(key)
    if codec is None:
        codec = _shared[key] = _FastCodec(state, controls)
    return codec


class _FastCodec:
    """Clones of a `tokenizers.Tokenizer`; frozen ones are safe to share without a lock."""

    def __init__(self, state: str, controls: ControlSet) -> None:
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
        return _ids(self._whole, text)

    def encode_stretch(self, text: str, first: bool) -> list[int]:
        codec = self._first if first else self._later
        ids = _ids(codec, text)
        if self._renumbered:
            return [self._renumbered.get(i, i) for i in ids]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._whole.decode(list(ids), skip_special_tokens=False)


def _ids(codec: Tokenizer, text: str) -> list[int]:
    """A single text is encoded under the GIL: a megabyte stops every thread for seconds.

    A batch gives the GIL back. For short texts it is no faster, and where tokenizers may use
    threads it warns programs that fork later.
    """
    if len(text) <= _UNDER_GIL:
        return codec.encode(text, add_special_tokens=False).ids
    return codec.encode_batch_fast([text], add_special_tokens=False)[0].ids


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
    outer = state.get("pre_tokenizer") or {}
    parts = [outer, *outer.get("pretokenizers", [])]
    if not any(map(_prepends_first, parts)):
        return None
    never = [{**p, "prepend_scheme": "never"} if _prepends_first(p) else p for p in parts]
    whole = {**never[0], "pretokenizers": never[1:]} if never[1:] else never[0]
    return {**state, "pre_tokenizer": whole}


def _prepends_first(part: dict[str, Any]) -> bool:
    return part.get("type") == "Metaspace" and part.get("prepend_scheme") == "first"


# Reading a tokenizer of 50,000 words three times takes a second. A codec never changes, so engines
# over equal tokenizers share one for as long as any of them lives.
_shared: Final[WeakValueDictionary[bytes, _FastCodec]] = WeakValueDictionary()

"""Clones of the user's tokenizer: whole texts, stretches without structure, ids back to text."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeAlias
from weakref import WeakValueDictionary

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import PreTokenizer

from cachefriendly.prompt.control import ControlSet
from cachefriendly.prompt.digests import digest_of
from cachefriendly.prompt.fingerprint import tokenizer_digest

__all__ = ["Codec", "codec_for"]

# Characters that are encoded within the 20 ms that nobody misses.
_UNDER_GIL = 8192


class Codec(Protocol):
    """Encoding and decoding that nobody else can change. Thread safe."""

    @property
    def digest(self) -> bytes:
        """`tokenizer_digest` of the tokenizer as it was."""

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
    digest = digest_of(state.encode())
    key = (digest, frozenset(controls.by_text))
    codec = _shared.get(key)
    if codec is None:
        codec = _shared[key] = _FastCodec(state, digest, controls)
    return codec


class _FastCodec:
    """Clones of a `tokenizers.Tokenizer`; frozen ones are safe to share without a lock."""

    def __init__(self, state: str, digest: bytes, controls: ControlSet) -> None:
        self.digest: Final = digest
        self._whole = whole = _frozen(state)
        added = sorted(whole.get_added_tokens_decoder().items())
        kept = [(old, token) for old, token in added if token.content not in controls.by_text]
        tokens = [token for _, token in kept]
        self._first = self._later = _stretches(whole, whole.pre_tokenizer, tokens)
        never = _never_prepending(whole.pre_tokenizer)
        if never is not None:
            self._later = _stretches(whole, never, tokens)
        # Added tokens are numbered anew where some before them are gone.
        numbers = {self._first.token_to_id(token.content): old for old, token in kept}
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
        self.digest: Final = tokenizer_digest(tokenizer)
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


def _stretches(
    whole: Tokenizer, pre_tokenizer: PreTokenizer | None, added: Sequence[AddedToken]
) -> Tokenizer:
    """What ``whole`` is to text without structure: it shares its vocabulary, which is read once.

    A post-processor adds nothing here, and may name control tokens that are not ``added``.
    """
    clone = Tokenizer(whole.model)
    clone.normalizer, clone.pre_tokenizer = whole.normalizer, pre_tokenizer
    clone.add_tokens(list(added))
    return clone


def _never_prepending(pre_tokenizer: PreTokenizer | None) -> PreTokenizer | None:
    """The same for text that does not start the prompt; None when it is no other.

    Metaspace with scheme ``first`` adds a space at offset 0 of what it is given; in the whole text
    only the first stretch lies there. Other schemes treat every stretch alike already.
    """
    empty = Tokenizer(BPE())  # a state that is read and written for its pre-tokenizer alone
    empty.pre_tokenizer = pre_tokenizer
    state = json.loads(empty.to_str())
    outer = state["pre_tokenizer"] or {}
    first = [part for part in (outer, *outer.get("pretokenizers", [])) if _prepends_first(part)]
    for part in first:
        part["prepend_scheme"] = "never"
    return Tokenizer.from_str(json.dumps(state)).pre_tokenizer if first else None


def _prepends_first(part: dict[str, Any]) -> bool:
    return part.get("type") == "Metaspace" and part.get("prepend_scheme") == "first"


# Reading a tokenizer of 50,000 words holds every thread for a quarter of a second. A codec never
# changes, so engines over equal tokenizers share one for as long as any of them lives.
_Key: TypeAlias = tuple[bytes, frozenset[str]]
_shared: Final[WeakValueDictionary[_Key, _FastCodec]] = WeakValueDictionary()

"""A tokenizer's vocabulary as llguidance sees it; llguidance is imported here and nowhere else."""

from __future__ import annotations

import copy
import re
import threading
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from cachefriendly.errors import MissingExtra, RequestError, SchemaError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

__all__ = ["Vocabulary", "grammar_problem", "start_matcher"]

# Texts that end a JSON value soon, by where they help. Inside a string braces are only text.
_QUOTE_CLOSERS = ('"}}', '"}]', '"]}', '"}', '"]', '"')
_BRACE_CLOSERS = ("]}}", "}}}", "]}", "}}", "}]", "]]", "}", "]")
_VALUES = ("null", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "false", "true")
_FILLERS = ("................", "........", "....", "...", "..", ".", "a")
_OPENERS = ("{}", "[]", ", ", ",", ": ", ":", " ", "[", "{")
_IN_STRING = (*_QUOTE_CLOSERS, *_FILLERS)
# "Z" ends a date-time, whose seconds may have any number of digits.
_BETWEEN_VALUES = (
    *_BRACE_CLOSERS, '""', '"', *_QUOTE_CLOSERS, "Z", *_VALUES, *_OPENERS, *_FILLERS
)  # fmt: skip


class Vocabulary:
    """The ids of one tokenizer, padded to the width of the model's logits.

    Cheap to construct; what llguidance needs (about 0.3 s for 49,000 tokens) is built once, at
    first use. Safe to share between threads. ``stop_ids`` end a reply (all of the model's
    end-of-sequence ids).
    """

    # A memo: it changes speed only, and an entry goes with its tokenizer.
    _made: ClassVar[WeakKeyDictionary[Any, dict[object, Vocabulary]]] = WeakKeyDictionary()
    _making = threading.Lock()

    def __init__(self, backend: Any, n_vocab: int, stop_ids: Iterable[int]) -> None:
        self.n_vocab = n_vocab
        self.stop_ids = frozenset(stop_ids)
        self._backend = backend
        self._lock = threading.Lock()
        self._built: LLTokenizer | None = None

    @classmethod
    def from_tokenizer(
        cls, tokenizer: Any, n_vocab: int, *, stop_ids: Iterable[int] | None = None
    ) -> Vocabulary:
        """Of a transformers tokenizer; ``stop_ids`` default to its end-of-sequence id.

        Equal arguments give the same vocabulary while the tokenizer lives and gets no new tokens.

        Raises:
            RequestError: the tokenizer is a slow one, or no id ends a reply.
        """
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None or not hasattr(backend, "to_str"):
            raise RequestError(
                f"{type(tokenizer).__name__} is not a fast tokenizer, and grammars need one; "
                "load it with use_fast=True, or use tool_choice='auto' and no response schema"
            )
        ids = [tokenizer.eos_token_id] if stop_ids is None else list(stop_ids)
        usable = [int(token) for token in ids if token is not None and 0 <= token < n_vocab]
        if not usable:
            raise RequestError(
                f"no end-of-sequence id below {n_vocab} among {ids!r}; a grammar needs one to stop"
            )
        key = (n_vocab, frozenset(usable), len(tokenizer))
        with cls._making:
            made = cls._made.setdefault(tokenizer, {})
            if key not in made:
                made[key] = cls(backend, n_vocab, usable)
            return made[key]

    @property
    def tokenizer(self) -> LLTokenizer:
        """llguidance's view, built at first use."""
        with self._lock:
            if self._built is None:
                self._built = self._build()
            return self._built

    def _build(self) -> LLTokenizer:
        backend = copy.copy(self._backend)  # the owner's padding and truncation stay as they are
        backend.no_padding()
        backend.no_truncation()
        width = max(self.n_vocab, backend.get_vocab_size(with_added_tokens=True))
        built: LLTokenizer = _llguidance().LLTokenizer(
            backend.to_str(), n_vocab=width, eos_token=sorted(self.stop_ids)
        )
        return built

    @cached_property
    def added_ids(self) -> dict[str, int]:
        """The added tokens: text that the tokenizer reads as one id wherever it stands."""
        added = self._backend.get_added_tokens_decoder()
        return {token.content: index for index, token in added.items() if index < self.n_vocab}

    @cached_property
    def string_order(self) -> tuple[int, ...]:
        """The order of preference inside a string, where braces are only text."""
        return self._single(_IN_STRING)

    @cached_property
    def value_order(self) -> tuple[int, ...]:
        """The order of preference between values."""
        return self._single(_BETWEEN_VALUES)

    @cached_property
    def text_probe(self) -> int | None:
        """An id that JSON allows inside strings only."""
        return next(iter(self._single(("Q", "Z", "X"))), None)

    def _single(self, texts: Iterable[str]) -> tuple[int, ...]:
        """The ids of those texts that are one token each."""
        encoded = (self.tokenizer.tokenize_str(text) for text in texts)
        return tuple(ids[0] for ids in encoded if len(ids) == 1 and ids[0] < self.n_vocab)


def start_matcher(vocabulary: Vocabulary, lark: str, *, what: str) -> LLMatcher:
    """A matcher at the beginning of a lark grammar.

    Raises:
        SchemaError: llguidance refuses the grammar.
        MissingExtra: llguidance is not installed.
    """
    limits = _llguidance().LLParserLimits(verbose_errors=False)  # its errors would quote user text
    matcher: LLMatcher = _llguidance().LLMatcher(
        vocabulary.tokenizer, lark, log_level=0, limits=limits
    )
    if matcher.is_error():
        raise SchemaError(f"{what}: {_reason(matcher.get_error())}")
    return matcher


def grammar_problem(lark: str) -> str | None:
    """Why llguidance refuses a lark grammar, or None when it takes it; needs no vocabulary.

    Raises:
        MissingExtra: llguidance is not installed.
    """
    refused, texts = _llguidance().LLMatcher.validate_grammar_with_warnings(lark)
    return _reason(texts[0]) if refused else None


def _reason(error: str) -> str:
    """The reason alone, without the grammar's text that llguidance prints behind it."""
    text = re.split(r"\n *\d+ \| ", error, maxsplit=1)[0]
    _, found, reason = text.partition("failed to compile JSON schema: ")
    return " ".join((reason if found else text).split())


def _llguidance() -> Any:
    try:
        import llguidance
    except ImportError:
        raise MissingExtra("llguidance", "grammar") from None
    return llguidance

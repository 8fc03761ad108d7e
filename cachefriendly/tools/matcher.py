"""Hold a reply to a grammar, and to a length: whatever is sampled, it ends whole within budget."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from cachefriendly.errors import RequestError, SchemaError
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.closing import (
    allowed_mask,
    greedy_closing,
    searched_closing,
    still_closes,
)
from cachefriendly.tools.vocabulary import Vocabulary, start_matcher

if TYPE_CHECKING:
    from llguidance import LLMatcher

__all__ = ["GrammarMatcher", "marker_rule", "resolved_lark"]

_SUSPICIOUS = 64
"""A first walk longer than this may have run in circles: worth a search."""
_UNTIL = re.compile(r"^(\w+)@(\d+): (.*)$", re.MULTILINE)
"""``name@2: terminal`` in a lark: text of the terminal up to ``GrammarSpec.markers[2]``."""


def marker_rule(index: int) -> str:
    """The lark name of ``GrammarSpec.markers[index]``."""
    return f"marker_{index}"


class GrammarMatcher:
    """One reply's state in its grammar; used by one thread.

    Invariant: a closing, ids that complete the grammar from here, is always known and fits into
    the tokens that are left. A sampled id is taken when a closing that still fits is known behind
    it; otherwise the first id of the known closing takes its place.

    Attributes:
        finished: the reply is complete: a stop id was accepted, nothing may follow, or no token
            is left.
    """

    def __init__(self, spec: GrammarSpec, vocabulary: Vocabulary, *, max_tokens: int) -> None:
        """
        Raises:
            RequestError: even the shortest reply needs more than ``max_tokens``; says how many.
            SchemaError: llguidance refuses the grammar.
            MissingExtra: llguidance is not installed.
        """
        self.finished = False
        self._vocabulary = vocabulary
        self._left = max_tokens
        self._matcher = start_matcher(vocabulary, resolved_lark(spec, vocabulary), what=spec.what)
        self._endings = _endings(spec, vocabulary)
        self._closing = self._first_closing(spec.what, max_tokens)
        self._shortest = len(self._closing)
        self._update_finished()

    def allowed(self) -> torch.Tensor:
        """Which ids may come next: a fresh bool tensor [n_vocab] on the CPU."""
        return torch.from_numpy(allowed_mask(self._matcher, self._vocabulary))

    def accept(self, token_id: int) -> int:
        """Move on by the sampled id; returns the id really taken, which belongs to the reply.

        Raises:
            ValueError: the reply is finished already.
        """
        if self.finished:
            raise ValueError("the reply is complete; nothing may follow")
        taken = token_id if self._try(token_id) else self._close_on()
        self._left -= 1
        self._update_finished()
        return taken

    def _try(self, token: int) -> bool:
        """Take the id if a closing that fits is known behind it."""
        if token in self._vocabulary.stop_ids:
            self.finished = self._matcher.is_accepting()
            return self.finished
        if self._closing and token == self._closing[0]:
            self._close_on()
            return True
        if not 0 <= token < self._vocabulary.n_vocab or not self._matcher.validate_tokens([token]):
            return False
        trial = self._matcher.deep_copy()
        trial.consume_token(token)
        closing = self._closing_from(trial, room=self._left - 1)
        if closing is None:
            return False
        self._matcher, self._closing = trial, closing
        return True

    def _closing_from(self, matcher: LLMatcher, room: int) -> tuple[int, ...] | None:
        """The closing of a state one id further on: mostly the known one still serves."""
        known = self._closing
        if len(known) <= room and still_closes(matcher, known):
            return known
        far = 3 * max(len(known), self._shortest) + 64
        vocabulary, endings = self._vocabulary, self._endings
        found = greedy_closing(matcher, vocabulary, limit=min(room, far), endings=endings)
        if found is None and far < room:
            found = searched_closing(matcher, vocabulary, endings=endings)
        return found if found is not None and len(found) <= room else None

    def _first_closing(self, what: str, max_tokens: int) -> tuple[int, ...]:
        matcher, vocabulary, endings = self._matcher, self._vocabulary, self._endings
        closing = greedy_closing(matcher, vocabulary, endings=endings)
        if closing is None or len(closing) > min(max_tokens, _SUSPICIOUS):
            searched = searched_closing(matcher, vocabulary, endings=endings)
            found = [way for way in (closing, searched) if way is not None]
            if not found:
                raise SchemaError(f"{what}: no reply that fulfils the schema could be found")
            closing = min(found, key=len)
        if len(closing) > max_tokens:
            raise RequestError(
                f"{what}: the shortest reply needs {len(closing)} new tokens, but max_tokens="
                f"{max_tokens}; raise max_tokens (or max_new_tokens) to at least {len(closing)}"
            )
        return closing

    def _close_on(self) -> int:
        """Take the first id of the known closing; a stop id when nothing is left to close."""
        if not self._closing:
            self.finished = True
            return min(self._vocabulary.stop_ids)
        token, self._closing = self._closing[0], self._closing[1:]
        if not self._matcher.consume_token(token):
            raise RuntimeError("the grammar refused an id that it had admitted before")
        return token

    def _update_finished(self) -> None:
        self.finished = self.finished or self._left <= 0 or self._matcher.is_stopped()


def resolved_lark(spec: GrammarSpec, vocabulary: Vocabulary) -> str:
    """The lark with its markers defined: one added token each, or the literal text."""
    rules = []
    tokens = sorted(vocabulary.added_ids.keys() & set(spec.markers), key=len, reverse=True)
    for index, text in enumerate(spec.markers):
        token = vocabulary.added_ids.get(text)
        value = _quoted(text) if token is None else f"<[{token}]>"
        rules.append(f"{marker_rule(index)}: {value}\n")

    def until(found: re.Match[str]) -> str:
        name, index, pattern = found.groups()
        text, terminal = spec.markers[int(index)], name.upper()
        inner = next((part for part in tokens if part in text), None)
        if inner is None:
            return f"{name}[suffix={_quoted(text)}]: {terminal}\n{terminal}: {pattern}"
        # A text cannot tell where it ends, the token inside it can.
        before, _, after = text.partition(inner)
        whole = f"({pattern}) {_quoted(before)}" if before else pattern
        rest = f" {_quoted(after)}" if after else ""
        return f"{name}: {terminal} <[{vocabulary.added_ids[inner]}]>{rest}\n{terminal}: {whole}"

    return _UNTIL.sub(until, spec.lark) + "".join(rules)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _endings(spec: GrammarSpec, vocabulary: Vocabulary) -> tuple[tuple[int, ...], ...]:
    """The ids of the texts that end free text in the grammar."""
    texts = {spec.markers[int(found[2])] for found in _UNTIL.finditer(spec.lark)}
    tokens = [text for text in (*texts, *spec.markers) if text in vocabulary.added_ids]
    texts.update(spec.endings)
    return tuple(_ids(text, tokens, vocabulary) for text in sorted(texts))


def _ids(text: str, tokens: Sequence[str], vocabulary: Vocabulary) -> tuple[int, ...]:
    """The ids of a text in which some added tokens are one id each."""
    longest = sorted(tokens, key=len, reverse=True)
    pieces = re.split(f"({'|'.join(map(re.escape, longest))})", text) if longest else [text]
    ids: list[int] = []
    for piece in filter(None, pieces):
        token = vocabulary.added_ids.get(piece) if piece in tokens else None
        ids.extend(vocabulary.tokenizer.tokenize_str(piece) if token is None else [token])
    return tuple(ids)

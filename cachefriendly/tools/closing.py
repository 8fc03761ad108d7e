"""Find a short sequence of ids that completes a grammar from where a matcher stands."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cachefriendly.tools.vocabulary import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher

__all__ = ["allowed_mask", "greedy_closing", "searched_closing", "still_closes"]

_LONGEST_WALK = 4096
_WALK_CHOICES = 12
_PATIENCE = 16
_MOST_EXPANSIONS = 200
_MOST_BRANCHES = 24


def allowed_mask(matcher: LLMatcher, vocabulary: Vocabulary) -> NDArray[np.bool_]:
    """Which ids may come next: bool [n_vocab]."""
    packed = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
    bits = np.unpackbits(packed, bitorder="little")[: vocabulary.n_vocab]
    if bits.size < vocabulary.n_vocab:
        bits = np.pad(bits, (0, vocabulary.n_vocab - bits.size))
    return bits.view(np.bool_)


def still_closes(matcher: LLMatcher, closing: tuple[int, ...]) -> bool:
    """Whether ``closing`` completes the grammar from here; the matcher is not changed."""
    if matcher.validate_tokens(list(closing)) != len(closing):
        return False
    trial = matcher.deep_copy()
    trial.consume_tokens(list(closing))
    return trial.is_accepting()


def greedy_closing(
    matcher: LLMatcher,
    vocabulary: Vocabulary,
    *,
    limit: int | None = None,
    endings: Sequence[tuple[int, ...]] = (),
) -> tuple[int, ...] | None:
    """One walk that prefers what closes; None when it gets stuck or longer than ``limit``.

    ``endings`` are ids that end free text where the grammar has any.
    """
    walker = matcher.deep_copy()
    longest = _LONGEST_WALK if limit is None else limit
    path: list[int] = []
    uses: Counter[int] = Counter()
    while not walker.is_accepting():
        step = _ending(walker, vocabulary, endings) or _forced(walker, vocabulary)
        if not step:
            # An id chosen often leads in circles (digits without end): let others have a turn.
            choices = _preferred(walker, vocabulary, most=_WALK_CHOICES)
            step = sorted(choices, key=lambda token: uses[token] // _PATIENCE)[:1]
            uses.update(step)
        path.extend(step)
        if not step or len(path) > longest or not walker.consume_tokens(step):
            return None
    return tuple(path)


def searched_closing(
    matcher: LLMatcher, vocabulary: Vocabulary, *, endings: Sequence[tuple[int, ...]] = ()
) -> tuple[int, ...] | None:
    """A best-first search for the shortest: finds the way out where one walk runs in circles."""
    order = itertools.count()
    queue: list[tuple[int, int, LLMatcher, tuple[int, ...]]] = [
        (0, next(order), matcher.deep_copy(), ())
    ]
    for _ in range(_MOST_EXPANSIONS):
        if not queue:
            break
        _, _, state, path = heapq.heappop(queue)
        if state.is_accepting():
            return path
        forced = _ending(state, vocabulary, endings) or _forced(state, vocabulary)
        branches = (
            [forced]
            if forced
            else [[token] for token in _preferred(state, vocabulary, most=_MOST_BRANCHES)]
        )
        for step in branches:
            child = state.deep_copy()
            if child.consume_tokens(step):
                longer = (*path, *step)
                heapq.heappush(queue, (len(longer), next(order), child, longer))
    return None


def _forced(matcher: LLMatcher, vocabulary: Vocabulary) -> list[int]:
    """The ids that must follow, as the tokenizer would write them; empty when there is a choice."""
    ids = matcher.compute_ff_tokens()
    return ids if all(token < vocabulary.n_vocab for token in ids) else []


def _ending(
    matcher: LLMatcher, vocabulary: Vocabulary, endings: Sequence[tuple[int, ...]]
) -> list[int]:
    """The ids that end the free text the matcher is in; empty when it is not in any."""
    for ending in endings:
        if matcher.validate_tokens(list(ending)) == len(ending):
            trial = matcher.deep_copy()
            trial.consume_tokens(list(ending))
            probe = vocabulary.text_probe
            if probe is None or not allowed_mask(trial, vocabulary)[probe]:
                return list(ending)
    return []


def _preferred(matcher: LLMatcher, vocabulary: Vocabulary, *, most: int) -> list[int]:
    """Up to ``most`` allowed ids, those likely to end soonest first; never a stop id."""
    mask = allowed_mask(matcher, vocabulary)
    probe = vocabulary.text_probe
    in_string = probe is not None and bool(mask[probe])
    order = vocabulary.string_order if in_string else vocabulary.value_order
    chosen = [token for token in order if mask[token]][:most]
    if len(chosen) < most:
        known = {*chosen, *vocabulary.stop_ids}
        others = (int(token) for token in np.flatnonzero(mask) if int(token) not in known)
        chosen.extend(itertools.islice(others, most - len(chosen)))
    return chosen

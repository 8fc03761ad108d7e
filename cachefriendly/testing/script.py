"""Replies by script: the model runs for real, only the choice of ids is taken from it.

Random weights write gibberish, and no real model makes a given slip on demand. With a script the
forwards, the kept keys and the transcript are those of the real path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from cachefriendly.engine.sampler import Sampler

__all__ = ["scripted_replies"]


@contextmanager
def scripted_replies(*replies: Sequence[int]) -> Iterator[None]:
    """Each call that starts while the block runs chooses the next reply's ids, in order.

    A reply must end with a stop id, or be cut by ``max_tokens``; further calls choose freely.
    """
    waiting = [list(reply) for reply in replies]
    # With the sampler, so that no later one is made at its address and taken for it.
    running: dict[int, tuple[Sampler, Iterator[int]]] = {}
    original = Sampler.choose

    def choose(self: Sampler, logits: Tensor, allowed: Tensor | None = None) -> int:
        if id(self) not in running and waiting:
            running[id(self)] = self, iter(waiting.pop(0))
        if id(self) not in running:
            return original(self, logits, allowed)
        return next(running[id(self)][1])

    patched: Any = Sampler
    patched.choose = choose
    try:
        yield
    finally:
        patched.choose = original

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
    running: dict[Sampler, Iterator[int]] = {}
    original = Sampler.choose

    def choose(self: Sampler, logits: Tensor, allowed: Tensor | None = None) -> int:
        if self not in running and waiting:
            running[self] = iter(waiting.pop(0))
        script = running.get(self)
        return next(script) if script is not None else original(self, logits, allowed)

    patched: Any = Sampler
    patched.choose = choose
    try:
        yield
    finally:
        patched.choose = original

"""What random traces share: a seed, and the conversations so far."""

from __future__ import annotations

import random

from cachefriendly.engine.token_engine import TokenEngine


class Talks:
    """Conversations over one engine, chosen by a seed."""

    def __init__(self, tokens: TokenEngine, seed: int) -> None:
        self.tokens = tokens
        self.random = random.Random(seed)
        self.talks: list[tuple[int, ...]] = []

    def ids(self, most: int) -> tuple[int, ...]:
        return tuple(self.random.randrange(256) for _ in range(self.random.randint(1, most)))

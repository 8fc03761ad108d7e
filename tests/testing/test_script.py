"""Scripted replies: each call gets its own, in order."""

from __future__ import annotations

from typing import Any

import torch

from cachefriendly.engine.sampler import Sampler
from cachefriendly.testing import scripted_replies


def test_a_call_is_not_taken_for_an_earlier_one_that_is_gone() -> None:
    chosen = []
    with scripted_replies([1, 2], [3, 4], [5, 6]):
        for _ in range(3):
            sampler: Any = object.__new__(Sampler)  # its memory is free for the next one
            chosen.append(sampler.choose(torch.zeros(1)))
            del sampler
    assert chosen == [1, 3, 5]

"""Partial attention merged by log-sum-exp equals one attention."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cachefriendly.kv.kernels import attend, attend_math, attend_part, fold, merge, unfold


@given(
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    n=st.integers(1, 5),
    group=st.sampled_from([1, 2, 3]),
    seed=st.integers(0, 1000),
)
def test_parts_merge_to_the_whole(cuts: list[int], n: int, group: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    total, kv_heads, dim = sum(cuts), 2, 16
    query = torch.randn(1, kv_heads * group, n, dim, generator=generator) * 3
    key = torch.randn(1, kv_heads, total, dim, generator=generator)
    value = torch.randn(1, kv_heads, total, dim, generator=generator)
    parts, start = [], 0
    for cut in cuts:
        k, v = key[:, :, start : start + cut], value[:, :, start : start + cut]
        out, lse = attend_part(fold(query, kv_heads), k, v, scale=0.25)
        heads = kv_heads * group
        parts.append((unfold(out, heads), unfold(lse.unsqueeze(-1), heads).squeeze(-1)))
        start += cut
    merged, lse = merge(parts)
    exact, exact_lse = attention_in_float64(query, key, value, scale=0.25)
    # Twice what plain float32 math is off by in 20,000 random cases; a merge is off by no more.
    bound = 16 * torch.finfo(torch.float32).eps
    for out in (merged, attend(query, key, value, scale=0.25)):
        assert (out - exact).abs().max() <= bound * value.abs().max()
    assert (lse - exact_lse).abs().max() <= bound * exact_lse.abs().max().clamp(min=1)


def attention_in_float64(
    query: Tensor, key: Tensor, value: Tensor, *, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention as its formula says: the output, and the log-sum-exp of each row's scores."""
    heads, n = query.shape[1:3]
    grouped = fold(query.double(), key.shape[1])
    scores = grouped @ key.double().transpose(-1, -2) * scale
    out = unfold(scores.softmax(-1) @ value.double(), heads)
    return out, scores.logsumexp(-1).reshape(1, heads, n)


@pytest.mark.parametrize("shape", ["query", "key"])
def test_empty_parts_are_refused_before_the_kernel(shape: str) -> None:
    """The private kernel would kill the process."""
    query = torch.zeros(1, 2, 0 if shape == "query" else 1, 16)
    key = torch.zeros(1, 2, 0 if shape == "key" else 1, 16)
    with pytest.raises(ValueError, match="at least one query and one key"):
        attend_part(query, key, key, scale=1.0)


def test_strided_and_uneven_tensors_take_plain_math() -> None:
    """A non-contiguous last dimension is silently wrong in the kernel, uneven widths raise."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 2, 3, 16, generator=generator)
    key = torch.randn(1, 2, 16, 9, generator=generator).transpose(2, 3)
    value = torch.randn(1, 2, 9, 8, generator=generator)
    out, lse = attend_part(query, key, value, scale=0.3)
    want, want_lse = attend_math(query, key.contiguous(), value, scale=0.3)
    torch.testing.assert_close(out, want)
    torch.testing.assert_close(lse, want_lse)


def test_bf16_parts_are_merged_in_float32() -> None:
    """Sixteen parts, against the same merge in float64; in bf16 the sum would lose two digits."""
    generator = torch.Generator().manual_seed(0)
    parts = [
        (
            torch.randn(1, 2, 3, 8, generator=generator).bfloat16(),
            torch.randn(1, 2, 3, generator=generator) * 2,
        )
        for _ in range(16)
    ]
    out, lse = merge(parts)
    assert (out.dtype, lse.dtype) == (torch.bfloat16, torch.float32)
    lses = torch.stack([part for _, part in parts]).double()
    weights = torch.softmax(lses, 0).unsqueeze(-1)
    want = (torch.stack([part for part, _ in parts]).double() * weights).sum(0)
    assert torch.equal(out, want.bfloat16())
    torch.testing.assert_close(lse.double(), torch.logsumexp(lses, 0))

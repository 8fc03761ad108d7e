"""Attention over plain tensors: one call, or several merged by log-sum-exp.

The only module that calls torch's private attention kernels. They return the log-sum-exp that a
merge needs, and they have traps that no exception announces (measured on torch 2.13, CPU): an
empty key or query kills the process, a non-contiguous last dimension is silently wrong, a fully
masked row reports log-sum-exp 0, differing key and value widths raise. `attend_part` keeps away
from all four and falls back to plain math.

The merge is the rescaling of online softmax (Milakov and Gimelshein 2018) as used by
FlashAttention; cascades over shared segments are from Hydragen (Juravsky et al. 2024).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "Scores",
    "attend",
    "attend_math",
    "attend_part",
    "fold",
    "merge",
    "unfold",
    "with_sinks",
]


@dataclass(frozen=True, slots=True)
class Scores:
    """How one layer turns products of queries and keys into weights."""

    scale: float
    softcap: float | None
    sinks: Tensor | None


def fold(query: Tensor, kv_heads: int) -> Tensor:
    """[1, heads, n, d] -> [1, kv_heads, group * n, d]: query heads of a group become rows.

    Grouped kernels repeat keys instead; folding is up to 7 times faster in bf16 decoding.
    """
    _, heads, n, dim = query.shape
    return query.reshape(1, kv_heads, heads // kv_heads * n, dim)


def unfold(out: Tensor, heads: int) -> Tensor:
    """Inverse of `fold` on an output: [1, kv_heads, group * n, d] -> [1, heads, n, d]."""
    _, kv_heads, rows, dim = out.shape
    return out.reshape(1, heads, rows * kv_heads // heads, dim)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    causal: bool = False,
    mask: Tensor | None = None,
) -> Tensor:
    """Attention of all queries to all keys through the public kernel.

    Args:
        query: [1, heads, n, d]; key [1, kv_heads, m, d]; value [1, kv_heads, m, dv].
        causal: square causal mask; needs n == m.
        mask: additive [n, m] or boolean (True = visible), None for all visible.

    Returns:
        [1, heads, n, dv]
    """
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=causal,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def attend_part(
    query: Tensor, key: Tensor, value: Tensor, *, scale: float, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """Like `attend`, for one part of the keys: also gives the log-sum-exp of the scores.

    Returns:
        out [1, heads, n, dv] and lse [1, heads, n] in float32.
    """
    if query.shape[2] == 0 or key.shape[2] == 0:
        raise ValueError("attend_part needs at least one query and one key")
    if _flash_usable(query, key, value):
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, dropout_p=0.0, is_causal=causal, scale=scale
        )
        return out, lse
    mask = None
    if causal:
        n = query.shape[2]
        mask = torch.ones(n, n, dtype=torch.bool, device=query.device).tril()
    return attend_math(query, key, value, scale=scale, mask=mask)


def attend_math(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float,
    mask: Tensor | None = None,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Plain attention in float32; knows softcaps and any boolean mask [n, m]. Gives out and lse."""
    group = query.shape[1] // key.shape[1]
    keys = key.repeat_interleave(group, 1) if group > 1 else key
    values = value.repeat_interleave(group, 1) if group > 1 else value
    scores = (query.float() @ keys.float().transpose(-1, -2)) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - lse.unsqueeze(-1))
    return (weights @ values.float()).to(query.dtype), lse


def merge(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Combine partial attentions over disjoint keys; equal to one attention up to rounding.

    Args:
        parts: (out [1, heads, n, dv], lse [1, heads, n]) per part of the keys.

    Returns:
        out in the dtype of the parts, lse in float32. The merge itself is done in float32:
        in bf16 its error would be larger than that of the attention.
    """
    if len(parts) == 1:
        return parts[0]
    if len(parts) == 2:
        return _merge_two(*parts)
    lses = torch.stack([lse for _, lse in parts])
    total = torch.logsumexp(lses, 0)
    weights = torch.exp(lses - total).unsqueeze(-1)
    out = parts[0][0].float() * weights[0]
    for (part, _), weight in zip(parts[1:], weights[1:], strict=True):
        out = torch.addcmul(out, part.float(), weight)
    return out.to(parts[0][0].dtype), total


def _merge_two(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The common case, a past and a tail, in half the operators: it runs in every layer."""
    share = torch.sigmoid(left[1] - right[1]).unsqueeze(-1)
    out = torch.lerp(right[0].float(), left[0].float(), share)
    return out.to(left[0].dtype), torch.logaddexp(left[1], right[1])


def with_sinks(out: Tensor, lse: Tensor, sinks: Tensor | None) -> Tensor:
    """Attention sinks [heads] take their share once, after merging: out * sigmoid(lse - sink)."""
    if sinks is None:
        return out
    share = torch.sigmoid(lse - sinks.float().reshape(1, -1, 1)).unsqueeze(-1)
    return (out.float() * share).to(out.dtype)


def _flash_usable(query: Tensor, key: Tensor, value: Tensor) -> bool:
    same_width = query.shape[-1] == key.shape[-1] == value.shape[-1]
    dense = query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    return same_width and dense and query.device.type == "cpu"

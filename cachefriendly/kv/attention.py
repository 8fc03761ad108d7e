"""The attention and mask functions registered with transformers.

Inside a step they store what they are given and attend over each row's own pieces. Outside a
step they delegate to what the model used before, so its owner notices nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function

from cachefriendly.errors import UnsupportedModel
from cachefriendly.kv.extent import Piece
from cachefriendly.kv.kernels import (
    Scores,
    attend,
    attend_math,
    attend_part,
    fold,
    merge,
    unfold,
    with_sinks,
)
from cachefriendly.kv.plan import (
    ForeignUse,
    MaskSpec,
    Offsets,
    RowPlan,
    StepPlan,
    View,
    active_plan,
)
from cachefriendly.kv.takeover import IMPLEMENTATION, delegate_attention, delegate_mask

__all__ = ["PassThroughCache"]

# Arguments that models hand on and that say nothing about what a query may see.
_HARMLESS = frozenset(
    {
        "cache",
        "cache_position",
        "logits_to_keep",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "past_key_values",
        "position_embeddings",
        "position_ids",
        "return_dict",
        "use_cache",
    }
)


class PassThroughCache:
    """Passed as the model's cache: keeps nothing, hands every key and value on to attention.

    What a model does between ``update`` and attention (expanding latents, repeating heads) makes
    the stored tensor differ from the attended one, so storing happens in attention.
    """

    is_compileable = False
    is_sliding: tuple[bool, ...] = ()

    def update(
        self, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        return key, value

    def get_seq_length(self, layer_idx: int | None = None) -> Offsets:
        """For a layer that adds its past to the indices of its tokens (Llama 4). A model that asks
        for all of its layers gets no answer."""
        plan = active_plan()
        if layer_idx is None or plan is None:
            raise UnsupportedModel(
                "the model asks its cache for one sequence length; a packed forward has several"
            )
        return plan.offsets()

    def __getattr__(self, name: str) -> Any:
        raise ForeignUse(
            "the model keeps state of another kind in its cache than keys and values per token "
            f"({name}): recurrent, convolutional or compressed layers"
        )

    def get_query_offset(self, *args: Any, **kwargs: Any) -> int:
        return 0

    def get_mask_sizes(self, query_length: Any, *args: Any, **kwargs: Any) -> tuple[int, int]:
        return int(query_length), 0


@dataclass(frozen=True, slots=True)
class Own:
    """New queries, keys and values of one row, or of all: [1, heads, n, width] each."""

    query: Tensor
    key: Tensor
    value: Tensor

    def of(self, row: RowPlan) -> Own:
        """The part of one row."""
        part = slice(row.start, row.start + row.n)
        return Own(self.query[:, :, part], self.key[:, :, part], self.value[:, :, part])


def packed_mask(*args: Any, **kwargs: Any) -> Any:
    """Mask function: the composed ``mask_function`` itself inside a step, the owner's outside."""
    if active_plan() is None:
        return delegate_mask(*args, **kwargs)
    if kwargs.get("attention_mask") is not None:
        raise UnsupportedModel("the model builds a padding mask of its own in a packed forward")
    mask_function = kwargs.get("mask_function", causal_mask_function)
    return MaskSpec(mask_function, mask_function is causal_mask_function)


def packed_attention(  # noqa: PLR0913, PLR0917 - the signature is transformers'
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Any]:
    """Attention function of `transformers.AttentionInterface`.

    Args:
        query: [1, heads, T, d]; key [1, kv_heads, T, d]; value [1, kv_heads, T, dv]
        attention_mask: the `MaskSpec` made by `packed_mask` in this forward
        sliding_window: already part of the mask spec
        s_aux: attention sinks [heads]; they enter once, after merging: out * sigmoid(lse - sink)

    Returns:
        [1, T, heads, dv] and None
    """
    plan = active_plan()
    if plan is None:
        options = {
            "scaling": scaling,
            "dropout": dropout,
            "softcap": softcap,
            "sliding_window": sliding_window,
            "s_aux": s_aux,
        }
        return delegate_attention(module, (query, key, value, attention_mask), options | kwargs)
    scores = Scores(scaling if scaling is not None else query.shape[-1] ** -0.5, softcap, s_aux)
    _refuse_unknown(attention_mask, dropout, kwargs)
    out = _attend_rows(plan, _layer_of(module), Own(query, key, value), attention_mask, scores)
    return out.transpose(1, 2).contiguous(), None


def _attend_rows(plan: StepPlan, layer: int, new: Own, mask: MaskSpec, scores: Scores) -> Tensor:
    """Store the new keys and values of all rows, and attend row by row: [1, heads, T, dv]."""
    if new.query.shape[0] != 1 or new.query.shape[2] != plan.tokens:
        raise UnsupportedModel(
            f"attention saw {tuple(new.query.shape)} queries, expected [1, heads, {plan.tokens}, d]"
        )
    slot, fresh = plan.slot_for(layer, new.key, new.value)
    outs = []
    for row in plan.rows:
        own = new.of(row)
        if fresh:
            _store(row, slot, own.key[0], own.value[0])
        view = row.view(mask, own.query.device)
        outs.append(_attend_row(row, slot, own, view, scores))
    return outs[0] if len(outs) == 1 else torch.cat(outs, 2)


def _store(row: RowPlan, slot: int, key: Tensor, value: Tensor) -> None:
    for span in row.spans:
        stop = span.row_start + span.tokens
        span.extent.write(
            slot, span.offset, key[:, span.row_start : stop], value[:, span.row_start : stop]
        )


def _attend_row(row: RowPlan, slot: int, own: Own, view: View, scores: Scores) -> Tensor:
    """One row's queries over everything it may see: [1, heads, n, dv]."""
    if view.kind == "mask" or scores.softcap is not None:
        return _attend_masked(row, slot, own.query, view, scores)
    if row.n == 1:
        return _attend_parts(own, _parts(row.readable, slot, view.first), scores, chunk=False)
    if row.past == 0 and scores.sinks is None:
        return attend(own.query, own.key, own.value, scale=scores.scale, causal=True)
    return _attend_parts(own, _parts(row.held, slot, 0), scores, chunk=True)


def _parts(pieces: tuple[Piece, ...], slot: int, first: int) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of a row's tokens from ``first`` on, piece by piece."""
    parts = []
    position = 0
    for piece in pieces:
        skip = max(0, first - position)
        if skip < piece.tokens:
            parts.append(piece.extent.read(slot, piece.start + skip, piece.stop))
        position += piece.tokens
    return parts


def _attend_parts(
    own: Own, parts: list[tuple[Tensor, Tensor]], scores: Scores, *, chunk: bool
) -> Tensor:
    """Unmasked attention over ``parts``, merged; with ``chunk`` the row's own new keys join in
    square causal form (a prefill chunk sees its past and then itself)."""
    query, heads = own.query, own.query.shape[1]
    if len(parts) == 1 and not chunk and scores.sinks is None:
        key, value = parts[0]
        return unfold(attend(fold(query, key.shape[1]), key, value, scale=scores.scale), heads)
    results = []
    for key, value in parts:
        out, lse = attend_part(fold(query, key.shape[1]), key, value, scale=scores.scale)
        results.append((unfold(out, heads), unfold(lse.unsqueeze(-1), heads).squeeze(-1)))
    if chunk:
        results.append(attend_part(query, own.key, own.value, scale=scores.scale, causal=True))
    out, lse = merge(results)
    return with_sinks(out, lse, scores.sinks)


def _attend_masked(row: RowPlan, slot: int, query: Tensor, view: View, scores: Scores) -> Tensor:
    """Masks that are no simple shape, and softcapped scores: all keys in one tensor.

    The public kernel takes the mask; softcaps and sinks need plain math.
    """
    parts = _parts(row.readable, slot, view.first)
    key = parts[0][0] if len(parts) == 1 else torch.cat([k for k, _ in parts], 2)
    value = parts[0][1] if len(parts) == 1 else torch.cat([v for _, v in parts], 2)
    visible = view.visible
    if view.kind == "causal" and row.n > 1:
        n, total = row.n, row.past + row.n
        visible = torch.ones(n, total, dtype=torch.bool, device=query.device).tril(total - n)
    if scores.softcap is None and scores.sinks is None:
        return attend(query, key, value, scale=scores.scale, mask=visible)
    out, lse = attend_math(
        query, key, value, scale=scores.scale, mask=visible, softcap=scores.softcap
    )
    return with_sinks(out, lse, scores.sinks)


def _layer_of(module: nn.Module) -> int:
    layer = getattr(module, "layer_idx", None)
    if not isinstance(layer, int):
        raise UnsupportedModel(f"{type(module).__name__} has no layer_idx to store keys under")
    return layer


def _refuse_unknown(attention_mask: Any, dropout: float, kwargs: dict[str, Any]) -> None:
    if not isinstance(attention_mask, MaskSpec):
        kind = type(attention_mask).__name__
        raise UnsupportedModel(f"attention received a mask of type {kind}, not the mask spec")
    if dropout:
        raise UnsupportedModel(f"attention dropout {dropout} in evaluation")
    # ``is_causal=True`` says what the mask spec says; False would be another kind of model.
    harmless = _HARMLESS | ({"is_causal"} if kwargs.get("is_causal") is True else set())
    unknown = sorted(n for n, value in kwargs.items() if value is not None and n not in harmless)
    if unknown:
        raise UnsupportedModel(f"attention argument {unknown[0]!r} is not known to this runner")


AttentionInterface.register(IMPLEMENTATION, packed_attention)
AttentionMaskInterface.register(IMPLEMENTATION, packed_mask)

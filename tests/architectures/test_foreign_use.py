"""What models ask of our cache and mask beside keys and values: answered exactly, or refused."""

from __future__ import annotations

import pytest
import torch

from cachefriendly.engine.selfcheck import check_packed
from cachefriendly.engine.shrink import shrunken_copy
from cachefriendly.errors import UnsupportedModel
from cachefriendly.kv.attention import PassThroughCache
from cachefriendly.kv.extent import Ledger
from cachefriendly.kv.plan import MaskSpec, RowPlan, SlotTable, StepPlan, running
from cachefriendly.kv.sequence import Sequence
from cachefriendly.testing.survey_types import class_of, default_config


def small(model_type: str, **fields):
    config = default_config(model_type)
    for name, value in fields.items():
        setattr(config, name, value)
    return shrunken_copy(config, class_of(model_type))


def two_rows() -> StepPlan:
    held = Sequence(Ledger())
    held.reserve(5)
    held.commit()
    return StepPlan(
        [RowPlan(0, held, 2), RowPlan(2, Sequence(Ledger()), 3)], tokens=5, slots=SlotTable()
    )


def test_a_layer_that_asks_for_its_past_gets_each_tokens_own():
    with running(two_rows()):
        positions = torch.arange(5) + PassThroughCache().get_seq_length(0)
    assert positions.tolist() == [5, 6, 0, 1, 2]


def test_nothing_else_can_be_done_with_it():
    with running(two_rows()):
        past = PassThroughCache().get_seq_length(0)
    with pytest.raises(TypeError):
        assert past > 0
    with pytest.raises(TypeError):
        int(past)


def test_no_answer_for_a_model_that_asks_for_all_its_layers():
    with running(two_rows()), pytest.raises(UnsupportedModel, match="several"):
        PassThroughCache().get_seq_length()


def test_llama4_scales_by_position_inside_the_check():
    """Its scale starts at 8,192 tokens; the small copy's at 8, so that the check sees it."""
    copied = small("llama4_text")
    assert copied.config.floor_scale == 8
    check_packed(copied)


def test_other_state_is_named_and_hasattr_still_says_no():
    cache = PassThroughCache()
    assert not hasattr(cache, "layers")
    with pytest.raises(UnsupportedModel, match=r"state of another kind .*get_conv_state"):
        cache.get_conv_state(0)
    with pytest.raises(UnsupportedModel, match="recurrent"):
        check_packed(small("mamba"))


def test_a_model_that_works_on_its_mask_is_refused_in_words():
    spec = MaskSpec(lambda *_: True, plain_causal=False)
    assert not hasattr(spec, "dtype")
    with pytest.raises(UnsupportedModel, match="attention mask itself"):
        spec[:, 0]
    with pytest.raises(UnsupportedModel, match="attention mask itself"):
        check_packed(small("doge"))


def test_a_mask_that_knows_the_tokens_of_one_forward_only_is_seen_at_load():
    """Two chunks of about the same length do not show it; a single token does."""
    with pytest.raises(UnsupportedModel, match="one forward, not for positions"):
        check_packed(small("gemma4_unified"))

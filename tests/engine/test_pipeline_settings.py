"""What a transformers pipeline would generate with, read from the pipeline itself."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import GenerationConfig, pipeline

from cachefriendly.compat_transformers import pipeline_settings
from cachefriendly.config import Sampling
from cachefriendly.options import sampling_from
from cachefriendly.testing import byte_tokenizer, tiny_model


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, Sampling(max_tokens=256, temperature=0.7)),
        ({"max_new_tokens": 5, "do_sample": False}, Sampling(max_tokens=5, temperature=0.0)),
        (
            {"temperature": 0.3, "top_k": 7, "repetition_penalty": 1.3},
            Sampling(max_tokens=256, temperature=0.3, top_k=7, repetition_penalty=1.3),
        ),
        (
            {"generation_config": GenerationConfig(max_new_tokens=4, do_sample=False)},
            Sampling(max_tokens=4, temperature=0.0),
        ),
        (
            {"return_full_text": False, "eos_token_id": [7]},
            Sampling(max_tokens=256, temperature=0.7, stop_token_ids=(7,)),
        ),
    ],
)
def test_settings_of_a_pipeline(given: dict[str, Any], wanted: Any) -> None:
    pipe = pipeline(
        "text-generation", model=tiny_model("llama"), tokenizer=byte_tokenizer(), **given
    )
    assert sampling_from(pipeline_settings(pipe)) == wanted


def test_the_models_own_settings_are_left_to_the_model() -> None:
    model = tiny_model("llama")
    model.generation_config.update(do_sample=True, temperature=0.4, max_new_tokens=9)
    pipe = pipeline("text-generation", model=model, tokenizer=byte_tokenizer())
    assert sampling_from(pipeline_settings(pipe)) == Sampling()


def test_what_is_no_pipeline_has_none() -> None:
    class Holder:
        model = object()

    assert pipeline_settings(Holder()) == {}

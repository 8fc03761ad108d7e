"""Model types on the runner they must get, judged by random traces against cold runs."""

from __future__ import annotations

import copy

import pytest
from transformers import AutoConfig, AutoModelForImageTextToText

from cachefriendly.engine.runners import RunnerChoice
from cachefriendly.engine.selfcheck import choose_runner
from cachefriendly.engine.shrink import shrunken_copy
from cachefriendly.testing.survey import examine
from cachefriendly.testing.survey_trace import TOLERANCE, corrupted_token_effect, run_trace

PACKED = [
    "llama",
    "llama4_text",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "mistral",
    "gemma2",
    "gemma3_text",
    "gemma3n_text",
    "gemma4_text",
    "phi3",
    "phimoe",
    "olmo2",
    "gpt2",
    "granite",
    "smollm3",
    "gpt_oss",
    "deepseek_v3",
    "glm4_moe_lite",
]
FALLBACK = ["qwen3_5_text", "qwen3_next", "nemotron_h", "falcon_h1", "mamba2", "bloom"]
VISION = [
    "gemma3",
    "idefics3",
    "internvl",
    "llava",
    "mistral3",
    "qwen2_5_vl",
    "qwen2_vl",
    "qwen3_vl",
    "smolvlm",
]


@pytest.mark.parametrize("model_type", PACKED)
def test_packed_types_are_exact_there(model_type: str) -> None:
    result = examine(model_type)
    assert (result.verdict, result.reason) == ("packed", "")
    assert result.steps >= 20
    assert result.wrong == 0
    assert result.corrupted is not None
    assert result.corrupted > 10 * TOLERANCE, "a corrupted cached token goes unseen"


@pytest.mark.parametrize("model_type", FALLBACK)
def test_fallback_types_are_exact_there_and_say_why(model_type: str) -> None:
    result = examine(model_type)
    assert result.verdict == "fallback"
    assert result.reason
    assert result.steps >= 20
    assert result.wrong == 0


@pytest.mark.parametrize("model_type", VISION)
def test_vision_language_classes_are_exact_with_text_alone(model_type: str) -> None:
    config = AutoConfig.for_model(model_type)
    built = AutoModelForImageTextToText._model_mapping[type(config)]
    model = shrunken_copy(config, built)
    cold = copy.deepcopy(model)
    assert choose_runner(model) == RunnerChoice("packed")
    trace = run_trace(model, cold, RunnerChoice("packed"))
    assert trace.steps >= 20
    assert trace.wrong == 0
    assert corrupted_token_effect(model, cold) > 10 * TOLERANCE

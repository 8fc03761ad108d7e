"""Options under their standard names; unknown ones are refused by name."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cachefriendly.errors import ConfigError, RequestError
from cachefriendly_lc.settings import (
    check_call,
    check_timeout,
    constructor_options,
    generation_layers,
)


def test_aliases() -> None:
    assert constructor_options({"model_id": "m", "max_new_tokens": 3}, {"model", "max_tokens"}) == {
        "model": "m",
        "max_tokens": 3,
    }
    assert check_call({"max_completion_tokens": 3, "stop_sequences": ["x"]}) == {
        "max_tokens": 3,
        "stop": ["x"],
    }


def test_settings_of_a_remote_client_are_ignored() -> None:
    assert constructor_options({"api_key": "k", "model": "m"}, {"model"}) == {"model": "m"}


def test_what_has_no_counterpart_must_be_neutral() -> None:
    assert constructor_options({"n": 1, "presence_penalty": 0.0, "logit_bias": None}, ()) == {}
    assert check_call({"n": 1, "logprobs": False, "stream_usage": True}) == {"stream_usage": True}
    with pytest.raises(ConfigError, match="n=2 is not supported"):
        constructor_options({"n": 2}, ())
    with pytest.raises(RequestError, match="n=2 is not supported"):
        check_call({"n": 2})


def test_options_of_a_pipeline() -> None:
    given = {"max_new_tokens": 3, "return_full_text": False, "skip_prompt": True}
    fields = {"generation_kwargs"}
    assert check_call({"pipeline_kwargs": given}) == {"generation_kwargs": {"max_new_tokens": 3}}
    assert constructor_options({"do_sample": True, "generation_kwargs": given}, fields) == {
        "generation_kwargs": {"do_sample": True, "max_new_tokens": 3}
    }


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="'temprature'; did you mean 'temperature'"):
        constructor_options({"temprature": 1}, {"temperature"})
    with pytest.raises(RequestError, match="'top_pp'; did you mean 'top_p'"):
        check_call({"top_pp": 0.9})
    with pytest.raises(RequestError, match=r"'xyz'; known: .*generation_kwargs"):
        check_call({"xyz": 1})
    with pytest.raises(ConfigError, match="another name of 'max_tokens'"):
        constructor_options({"max_new_tokens": 1, "max_tokens": 2}, {"max_tokens"})


@pytest.mark.parametrize(
    ("name", "value"),
    [("cache_namespace", 3), ("generation_kwargs", 3), ("template_arguments", 3), ("tools", 3)],
)
def test_an_option_of_another_kind_is_named(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"{name}=3 is not usable; give a "):
        check_call({name: value})


def test_generation_parameters_by_name_come_last() -> None:
    options = check_call(
        {"do_sample": True, "eos_token_id": 2, "model": "m", "generation_kwargs": {"top_k": 3}}
    )
    assert generation_layers(options) == ({"top_k": 3}, {"do_sample": True, "stop_token_ids": 2})


@pytest.mark.parametrize("seconds", [0, -1, math.nan, "3", True])
def test_unusable_timeout(seconds: Any) -> None:
    with pytest.raises(RequestError, match="timeout="):
        check_timeout(seconds)
    assert check_timeout(None) is None
    assert check_timeout(2) == 2.0

"""Options under their standard names; unknown ones are refused by name."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cachefriendly.config import Sampling
from cachefriendly.errors import ConfigError, RequestError
from cachefriendly_lc.settings import check_call, check_timeout, constructor_options, sampling


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
    with pytest.raises(ConfigError, match="n=2 is not supported"):
        constructor_options({"n": 2}, ())


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="'temprature'; did you mean 'temperature'"):
        constructor_options({"temprature": 1}, {"temperature"})
    with pytest.raises(RequestError, match="'top_pp'; did you mean 'top_p'"):
        check_call({"top_pp": 0.9})
    with pytest.raises(RequestError, match=r"'xyz'; known: .*generation_kwargs"):
        check_call({"xyz": 1})
    with pytest.raises(ConfigError, match="another name of 'max_tokens'"):
        constructor_options({"max_new_tokens": 1, "max_tokens": 2}, {"max_tokens"})


def test_the_last_layer_wins_and_none_means_not_set() -> None:
    merged = sampling(
        {"temperature": 0.5, "generation_kwargs": {"max_new_tokens": 9, "min_new_tokens": 2}},
        {"temperature": None, "top_k": 5, "stop": "END"},
        {"max_tokens": 4},
    )
    assert merged == Sampling(
        temperature=0.5, top_k=5, max_tokens=4, stop=("END",), extra={"min_new_tokens": 2}
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", -1.0), ("temperature", math.nan), ("top_p", 1.5), ("max_tokens", 0)],
)
def test_unusable_values_are_named(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"{name}="):
        sampling({name: value})


@pytest.mark.parametrize("seconds", [0, -1, math.nan, "3", True])
def test_unusable_timeout(seconds: Any) -> None:
    with pytest.raises(RequestError, match="timeout="):
        check_timeout(seconds)
    assert check_timeout(None) is None
    assert check_timeout(2) == 2.0

"""Generation parameters and other loose options, under every name they come by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cachefriendly.config import Sampling
from cachefriendly.errors import ConfigError, RequestError
from cachefriendly.options import (
    check_kinds,
    first_given,
    refuse_unknown,
    sampling_from,
    standard_names,
)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_new_tokens": 5}, Sampling(max_tokens=5)),
        ({"max_completion_tokens": 5, "top_k": 3}, Sampling(max_tokens=5, top_k=3)),
        ({"stop": "END"}, Sampling(stop=("END",))),
        ({"stop_strings": ["a", "b"]}, Sampling(stop=("a", "b"))),
        ({"stop_sequences": ["a"], "stop": None}, Sampling(stop=("a",))),
        ({"eos_token_id": 2}, Sampling(stop_token_ids=(2,))),
        ({"stopping_ids": [2, 3]}, Sampling(stop_token_ids=(2, 3))),
        ({"no_repeat_ngram_size": 3}, Sampling(extra={"no_repeat_ngram_size": 3})),
        ({"temperature": None}, Sampling()),
    ],
)
def test_every_name_of_a_parameter(options: dict[str, Any], expected: Sampling) -> None:
    assert sampling_from(options) == expected


SAMPLES = Sampling(extra={"do_sample": True})


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([{"do_sample": False, "temperature": 0.7}], Sampling(temperature=0.0)),
        ([{"do_sample": True, "temperature": 0.7}], Sampling(temperature=0.7)),
        ([{"do_sample": True, "temperature": 0}], Sampling(temperature=0)),
        ([{"do_sample": True}], SAMPLES),
        ([{"do_sample": False}, {"temperature": 0.5}], Sampling(temperature=0.5)),
        ([{"do_sample": True}, {"temperature": 0}], Sampling(temperature=0)),
        ([{"temperature": 0}, {"do_sample": True}], SAMPLES),
        ([{"temperature": 0.7}, {"do_sample": False}], Sampling(temperature=0.0)),
        (
            [{"temperature": 0.7}, {"do_sample": False}, {"do_sample": True}],
            Sampling(temperature=0.7),
        ),
    ],
)
def test_greedy_or_sampled_is_what_the_last_layer_says(
    layers: list[dict[str, Any]], expected: Sampling
) -> None:
    assert sampling_from(*layers) == expected


def test_the_last_layer_wins_and_none_means_not_set() -> None:
    merged = sampling_from(
        {"max_new_tokens": 9, "min_new_tokens": 2, "temperature": 0.5},
        {},
        {"temperature": None, "max_tokens": 4, "stop": "END"},
    )
    assert merged == Sampling(
        temperature=0.5, max_tokens=4, stop=("END",), extra={"min_new_tokens": 2}
    )


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": float("nan")},
        {"temperature": -1.0},
        {"top_p": 2},
        {"max_tokens": -1},
        {"do_sample": "yes"},
        {"stop": 3},
        {"stop_token_ids": ["x"]},
    ],
)
def test_a_value_that_makes_no_sense_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=rf"{next(iter(options))}="):
        sampling_from(options)


def test_two_names_of_one_parameter_are_refused() -> None:
    with pytest.raises(RequestError, match="'max_tokens' is another name of 'max_tokens'"):
        sampling_from({"max_new_tokens": 5, "max_tokens": 6})
    with pytest.raises(ConfigError, match="'b' is another name of 'a'"):
        standard_names({"a": 1, "b": 2}, {"b": "a"}, error=ConfigError)
    assert standard_names({"a": 1, "b": None}, {"b": "a"}) == {"a": 1}
    assert standard_names({"b": None, "a": 1}, {"b": "a"}) == {"a": 1}


def test_unknown_names_are_refused_with_the_one_that_may_be_meant() -> None:
    refuse_unknown({"top_p": 1}, {"top_p"})
    with pytest.raises(RequestError, match="'top_pp'; did you mean 'top_p'"):
        refuse_unknown({"top_pp": 1}, {"top_p"})
    with pytest.raises(ConfigError, match="'max_new_token'; did you mean 'max_new_tokens'"):
        refuse_unknown({"max_new_token": 1}, {"top_p"}, error=ConfigError)
    with pytest.raises(RequestError, match="'xyz'; known: a, b; see there"):
        refuse_unknown({"xyz": 1}, {"b", "a"}, hint="see there")


def test_kinds_and_answers() -> None:
    check_kinds({"a": "x", "b": None}, {"a": str, "b": Mapping, "c": str})
    with pytest.raises(RequestError, match="a=3 is not usable; give a str"):
        check_kinds({"a": 3}, {"a": str})
    assert first_given(None, "", "default") == ""
    assert first_given(None, None) is None

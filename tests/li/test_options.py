"""Generation parameters under every name they come by."""

from __future__ import annotations

from typing import Any

import pytest

from cachefriendly.config import Sampling
from cachefriendly.errors import RequestError
from cachefriendly_li.options import sampling, split_call


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_new_tokens": 5}, Sampling(max_tokens=5)),
        ({"max_tokens": 5, "top_k": 3}, Sampling(max_tokens=5, top_k=3)),
        ({"do_sample": False, "temperature": 0.7}, Sampling(temperature=0.0)),
        ({"do_sample": True, "temperature": 0.7}, Sampling(temperature=0.7)),
        ({"do_sample": True}, Sampling(extra={"do_sample": True})),
        ({"stop": "END"}, Sampling(stop=("END",))),
        ({"stop_strings": ["a", "b"]}, Sampling(stop=("a", "b"))),
        ({"eos_token_id": 2}, Sampling(stop_token_ids=(2,))),
        ({"no_repeat_ngram_size": 3}, Sampling(extra={"no_repeat_ngram_size": 3})),
        ({"temperature": None}, Sampling()),
    ],
)
def test_names_of_llama_index_and_transformers(options: dict[str, Any], expected: Any) -> None:
    assert sampling(options) == expected


def test_the_last_layer_wins() -> None:
    assert sampling({"max_new_tokens": 9}, {}, {"max_tokens": 4}) == Sampling(max_tokens=4)
    assert sampling({"do_sample": False}, {"temperature": 0.5}) == Sampling(temperature=0.5)


def test_two_names_of_one_parameter_are_refused() -> None:
    with pytest.raises(RequestError, match="'max_tokens' is another name of 'max_tokens'"):
        sampling({"max_new_tokens": 5, "max_tokens": 6})


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": float("nan")},
        {"top_p": 2},
        {"max_tokens": -1},
        {"do_sample": "yes"},
        {"stop": 3},
        {"stop_token_ids": ["x"]},
    ],
)
def test_a_value_that_makes_no_sense_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=rf"{next(iter(options))}="):
        sampling(options)


def test_a_call_is_split_and_what_llama_index_adds_is_ignored() -> None:
    call, generation = split_call(
        {
            "session_id": "s",
            "tools": [],
            "verbose": True,
            "allow_parallel_tool_calls": True,
            "temperature": 0.1,
            "generate_kwargs": {"top_k": 2},
        }
    )
    assert call == {"session_id": "s", "tools": []}
    assert generation == {"top_k": 2, "temperature": 0.1}


@pytest.mark.parametrize(
    "name",
    ["session_id", "cache_namespace", "template_arguments", "tools", "generate_kwargs"],
)
def test_an_option_of_another_kind_is_named(name: str) -> None:
    with pytest.raises(RequestError, match=f"{name}=3 is not usable; give a "):
        split_call({name: 3})

"""What a call says, split by what it is about."""

from __future__ import annotations

import pytest

from cachefriendly.errors import RequestError
from cachefriendly_li.options import split_call


def test_a_call_is_split_and_what_llama_index_adds_is_ignored() -> None:
    call, layers = split_call(
        {
            "session_id": "s",
            "tools": [],
            "verbose": True,
            "allow_parallel_tool_calls": True,
            "formatted": True,
            "temperature": 0.1,
            "generate_kwargs": {"top_k": 2},
        }
    )
    assert call == {"session_id": "s", "tools": [], "allow_parallel_tool_calls": True}
    assert layers == ({"top_k": 2}, {"temperature": 0.1})


@pytest.mark.parametrize(
    "name",
    ["session_id", "cache_namespace", "template_arguments", "tools", "generate_kwargs"],
)
def test_an_option_of_another_kind_is_named(name: str) -> None:
    with pytest.raises(RequestError, match=f"{name}=3 is not usable; give a "):
        split_call({name: 3})

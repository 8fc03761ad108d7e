"""A token that ends a reply in the dialect ends it, whatever the generation config says."""

from __future__ import annotations

from cachefriendly.config import Sampling
from cachefriendly.engine.constraint import with_stops
from cachefriendly.prompt.control import ControlSet, ControlToken
from cachefriendly.tools.dialects.hermes import HermesDialect
from cachefriendly.tools.dialects.llama3 import Llama3Dialect

CONTROLS = ControlSet([ControlToken("<|eom_id|>", 7), ControlToken("<|eot_id|>", 8)])


def test_the_end_of_a_call_is_a_stop_id_where_the_tokenizer_has_it() -> None:
    sampling = with_stops(Sampling(stop_token_ids=(3,)), Llama3Dialect(), CONTROLS)
    assert sampling.stop_token_ids == (3, 7)
    assert with_stops(sampling, Llama3Dialect(), CONTROLS) == sampling
    assert with_stops(Sampling(), Llama3Dialect(), ControlSet([])) == Sampling()
    assert with_stops(Sampling(), HermesDialect(), CONTROLS) == Sampling()

"""A message put before a known reply is in the prompt, whatever that reply once followed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachefriendly.messages import Message
from cachefriendly.prompt import PromptBuilder
from cachefriendly.request import ChatRequest
from cachefriendly.testing import byte_tokenizer, templates
from tests.prompt.driver import Conversation, reference_ids

PLAIN = templates.CHATML_NO_DEFAULT_SYSTEM
POLICIES = ("template", "exact", "append")
PLACES = st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["user", "system"])), max_size=3)


def talk_of(policy: str, turns: int) -> Conversation:
    """A conversation in which every reply is as a tokenizer would spell it."""
    tokenizer = byte_tokenizer(PLAIN)
    talk = Conversation(PromptBuilder(tokenizer, policy=policy))
    for turn in range(turns):
        talk.add("user", f"question {turn}")
        text = f"answer {turn}"
        talk.reply(tokenizer(text).input_ids, Message("assistant", text))
    return talk


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("role", ["user", "system"])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_the_model_reads_it(policy: str, role: str, place: int) -> None:
    talk = talk_of(policy, 2)
    talk.add("user", "and now?")
    talk.messages.insert(place, Message(role, "Mind this."))  # type: ignore[arg-type]
    built = talk.prompt()
    assert built.ids == reference_ids(byte_tokenizer(PLAIN), talk.messages)
    assert built.losses


@given(st.sampled_from(POLICIES), PLACES)
def test_anywhere_and_several(policy: str, places: list[tuple[int, str]]) -> None:
    talk = talk_of(policy, 3)
    for number, (place, role) in enumerate(places):
        talk.messages.insert(place, Message(role, f"note {number}"))  # type: ignore[arg-type]
    talk.add("user", "and now?")
    request = ChatRequest(tuple(talk.messages))
    assert talk.builder.build(request).ids == reference_ids(byte_tokenizer(PLAIN), talk.messages)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_system_message_that_moved_is_read_where_it_stands_now(policy: str) -> None:
    talk = talk_of(policy, 0)
    talk.add("system", "Be brief.")
    talk.add("user", "question")
    talk.reply(byte_tokenizer(PLAIN)("answer").input_ids, Message("assistant", "answer"))
    talk.messages.insert(1, talk.messages.pop(0))
    talk.add("user", "and now?")
    assert talk.prompt().ids == reference_ids(byte_tokenizer(PLAIN), talk.messages)

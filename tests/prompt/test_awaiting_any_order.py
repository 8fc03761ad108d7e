"""The certain part while several tools run and nobody knows which one answers first."""

from __future__ import annotations

from itertools import permutations

import pytest

from cachefriendly.messages import ToolCall
from cachefriendly.prompt.awaiting import possible_orders
from cachefriendly.request import ChatRequest
from cachefriendly.testing import byte_tokenizer
from tests.prompt.test_awaiting import MERGED, calling, looped

NAMED = looped(
    "{{- '<|im_start|>tool ' + message.tool_call_id + '\\n' + message.content + '<|im_end|>\\n' -}}"
)
CALLS = tuple(ToolCall("get_weather", {"city": "Ulm"}, name) for name in ("ca1", "cb1", "ca2"))


def certain(chat, awaiting):
    request = ChatRequest(tuple(chat.messages), tools=chat.tools)
    return chat.builder.build(request, awaiting=awaiting)


def decoded(chat, part):
    return chat.builder.tokens.decode(part.ids[len(chat.held) :])


@pytest.mark.parametrize("order", list(permutations(CALLS)), ids=str)
def test_the_certain_part_of_a_set_begins_every_order(order):
    chat = calling(byte_tokenizer(NAMED), CALLS)
    part = certain(chat, {call.id for call in CALLS})
    assert decoded(chat, part) == "<|im_end|>\n<|im_start|>tool c"
    for call in order:
        chat.add("tool", "Sun", tool_call_id=call.id, name=call.name)
    assert chat.prompt().ids[: len(part.ids)] == part.ids


def test_a_sequence_is_the_order_itself():
    chat = calling(byte_tokenizer(NAMED), CALLS)
    part = certain(chat, ["cb1", "ca1", "ca2"])
    assert decoded(chat, part) == "<|im_end|>\n<|im_start|>tool cb1\n"


def test_where_results_name_no_call_the_order_changes_nothing():
    chat = calling(byte_tokenizer(MERGED), CALLS)
    ids = [call.id for call in CALLS]
    assert certain(chat, set(ids)).ids == certain(chat, ids).ids


def test_each_call_of_a_set_can_be_first():
    assert possible_orders(["a", "b"]) == [("a", "b")]
    assert possible_orders(()) == [()]
    assert {order[0] for order in possible_orders(frozenset("abc"))} == set("abc")

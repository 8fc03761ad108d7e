"""Who follows a model's calls is told which of them an event is of."""

from __future__ import annotations

from functools import reduce
from operator import add

from langchain_core.messages import AIMessageChunk, message_chunk_to_message

from cachefriendly.messages import Message
from cachefriendly.testing import ScriptedEngine
from cachefriendly_lc import ChatCacheFriendly
from cachefriendly_lc.listener import listening
from cachefriendly_lc.middleware_turn import Turn


def test_a_reply_belongs_to_its_own_call_when_two_are_made_at_once() -> None:
    replies = (Message("assistant", f"Reply {n}.", handle=f"cf1:0:{n}") for n in (1, 2))
    model = ChatCacheFriendly(engine=ScriptedEngine(*replies))
    turn = Turn()
    with listening(turn):
        slow = model.stream("slow")
        first = next(slow)
        model.invoke("quick")
        reply = reduce(add, slow, first)
    assert isinstance(reply, AIMessageChunk)
    turn.closes([message_chunk_to_message(reply)])
    assert turn.call is not None
    assert turn.call.request.messages[-1].content == "slow"

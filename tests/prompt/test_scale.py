"""Long conversations: time per build grows with the conversation, not with its square."""

from __future__ import annotations

import time

from cachefriendly.messages import Message
from cachefriendly.prompt import PromptBuilder
from cachefriendly.request import ChatRequest
from cachefriendly.testing import byte_tokenizer, templates


def grown(builder: PromptBuilder, turns: int) -> tuple[tuple[Message, ...], tuple[int, ...]]:
    """A conversation of ``turns`` turns, every eighth of them recorded, and what is held of it."""
    messages: tuple[Message, ...] = ()
    held: tuple[int, ...] = ()
    for turn in range(turns):
        messages += (Message("user", f"question {turn}"),)
        reply = Message("assistant", f"answer {turn}")
        if turn % 8:
            messages += (reply,)
            continue
        built = builder.build(ChatRequest(messages))
        assert built.ids[: len(held)] == held
        ids = builder.encode_text(reply.content)
        builder.commit(built, ids, reply)
        messages += (reply,)
        held = built.ids + tuple(ids)
    return messages, held


def build_seconds(builder: PromptBuilder, messages: tuple[Message, ...]) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        builder.build(ChatRequest((*messages, Message("user", "and now?"))))
        best = min(best, time.process_time() - start)
    return best


def test_two_thousand_messages_build_in_linear_time():
    builder = PromptBuilder(byte_tokenizer(templates.CHATML))
    short, _ = grown(builder, 100)
    long, held = grown(builder, 1000)
    built = builder.build(ChatRequest((*long, Message("user", "and now?"))))
    assert built.ids[: len(held)] == held
    assert sum(span.source == "recorded" for span in built.spans) == 125
    assert build_seconds(builder, long) < 3 * 10 * build_seconds(builder, short)

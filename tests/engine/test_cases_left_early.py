"""CASES.md 24, through the whole engine: calls that their reader leaves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cachefriendly import Cancelled, ChatRequest, Engine, Message, MissReason, Sampling
from cachefriendly.testing import scripted_replies, templates
from tests.engine.cases import MakeEngine, as_generated, ask, reply_ids, settle


def test_case_24_a_stream_closed_early(demo_engine: Engine) -> None:
    """The shown part comes back in history: recognised, and what was certain is reused."""
    talk = [Message("user", "Tell me a long story about the sea.")]
    request = ChatRequest(tuple(talk), sampling=Sampling(max_tokens=60, temperature=0))
    shown = ""
    stream = iter(demo_engine.chat(request))
    for event in stream:
        shown += getattr(event, "text", "")
        if len(shown) > 20:
            break
    stream.close()  # type: ignore[attr-defined]
    prompt = demo_engine.prompt_ids(request)
    talk += [Message("assistant", shown), Message("user", "Stop. Who are you?")]
    second = ask(demo_engine, talk, "Me.")
    generated = demo_engine.token_ids(shown)
    assert second.report.reused_tokens >= len(prompt) + len(generated) - 1
    assert second.report.losses == ()


@pytest.mark.parametrize("how", ["close", "cancel"])
def test_case_24_with_4_what_was_shown_keeps_its_ids(demo_engine: Engine, how: str) -> None:
    """Left early in a spelling that tokenizes differently: recognised by what was shown."""
    letters = [i for char in "Paris is nice today" for i in demo_engine.token_ids(char)]
    talk = [Message("user", f"Leave by {how}.")]
    request = ChatRequest(tuple(talk), sampling=Sampling(max_tokens=50, temperature=0))
    shown = ""
    with scripted_replies([*letters, demo_engine.tokenizer.eos_token_id]):
        call = demo_engine.chat(request)
        stream = iter(call)
        while len(shown) < 6:
            shown += getattr(next(stream), "text", "")
        if how == "cancel":
            call.cancel()
            with pytest.raises(Cancelled):
                shown += "".join(getattr(event, "text", "") for event in stream)
        stream.close()
    prompt = demo_engine.prompt_ids(request)
    assert demo_engine.token_ids(shown) != letters[: len(shown)]
    second = ask(demo_engine, [*talk, Message("assistant", shown), Message("user", "x")], "ok")
    assert second.prompt_ids[len(prompt) : len(prompt) + len(shown)] == tuple(letters[: len(shown)])
    assert second.report.reused_tokens >= len(prompt) + len(shown) - 1


async def test_case_24_a_cancelled_task(demo_engine: Engine, demo_model: Any) -> None:
    import asyncio

    request = ChatRequest(
        (Message("user", "Write a very long poem."),), sampling=Sampling(max_tokens=200)
    )
    task = asyncio.create_task(demo_engine.chat(request).aresult())
    while not demo_engine.stats().core.running:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    follow = ChatRequest(request.messages, sampling=Sampling(max_tokens=6, temperature=0))
    result = await demo_engine.chat(follow).aresult()
    assert result.report.prefilled_tokens == 1  # the whole prompt was certain
    as_generated(demo_model, result, 6)
    assert demo_engine.stats().core.running == 0


def test_case_24_with_19_weights_changed_after_a_call_was_left(make_engine: MakeEngine) -> None:
    """Nothing was evicted, though the call that was left never had a result."""
    engine = make_engine(templates.CHATML)
    talk = [Message("user", "one")]
    with scripted_replies(reply_ids(engine, "a long answer")):
        stream = iter(engine.chat(ChatRequest(tuple(talk), sampling=Sampling(max_tokens=40))))
        shown = "".join(getattr(next(stream), "text", "") for _ in range(3))
        stream.close()  # type: ignore[attr-defined]
        settle(engine)
    with torch.no_grad():
        engine.model.lm_head.weight.add_(0.1)
    talk += [Message("assistant", shown), Message("user", "two")]
    losses = ask(engine, talk, "second answer").report.losses
    assert [loss.reason for loss in losses] == [MissReason.OTHER_FINGERPRINT]

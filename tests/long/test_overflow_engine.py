"""A conversation near the window limit over a whole engine: never two full windows in a row."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from cachefriendly import ChatRequest, ContextOverflow, Engine, EngineConfig, Message, Sampling
from cachefriendly.events import ChatResult, MissReason
from cachefriendly.testing import byte_tokenizer, cold_generate, templates, tiny_model

WINDOW = 640
TURNS = 60
SYSTEM = Message("system", "Answer in few words.")
GREEDY = Sampling(max_tokens=6, temperature=0)


def tiny_engine(**options: Any) -> Engine:
    options = {"context_window": WINDOW, "default_max_tokens": 64, **options}
    tokenizer = byte_tokenizer(templates.NATIVE_TOOLS)
    return Engine(tiny_model("llama"), tokenizer, EngineConfig(**options))


def question(turn: int) -> Message:
    return Message("user", f"question {turn} " + "x" * (turn * 7 % 20))


def play(engine: Engine, turns: int) -> list[ChatResult]:
    messages, results = [SYSTEM], []
    for turn in range(turns):
        messages.append(question(turn))
        results.append(engine.chat(ChatRequest(tuple(messages), sampling=GREEDY)).result())
        messages.append(results[-1].message)
    return results


@pytest.mark.parametrize(
    ("overflow", "history"),
    [
        ("drop_oldest", "template"),
        ("drop_oldest", "exact"),
        ("drop_oldest", "append"),
        ("sink_window", "template"),
    ],
)
def test_never_two_windows_prefilled_in_a_row(overflow: Any, history: Any) -> None:
    """CASES 13: over 60 turns the cut moves a few times; every other call forwards its own turn."""
    cold = tiny_model("llama")
    with tiny_engine(overflow=overflow, history=history) as engine:
        results = play(engine, TURNS)
    reports = [result.report for result in results]
    moved = [
        n
        for n, (a, b) in enumerate(pairwise(reports), 1)
        if a.dropped_messages != b.dropped_messages
    ]
    assert 3 <= len(moved) <= 12
    assert min(b - a for a, b in pairwise(moved)) >= 4
    for number, report in enumerate(reports):
        cut = [loss for loss in report.losses if loss.reason is MissReason.HISTORY_CUT]
        assert bool(cut) == (number in moved)
        assert report.prompt_tokens < WINDOW
        if number in moved:
            assert report.prefilled_tokens <= 0.5 * WINDOW
            assert cut[0].tokens_lost > 0
        else:
            assert report.prefilled_tokens <= 80
    for result in results[::6] + [results[n] for n in moved]:
        assert not self_consistent(cold, result)


def self_consistent(cold: Any, result: ChatResult) -> str:
    """Empty if a cold run of the same prompt gives the same ids."""
    ids = cold_generate(cold, result.prompt_ids, max_new_tokens=6)
    return "" if tuple(ids)[: len(result.output_ids)] == result.output_ids else f"{ids} differ"


def test_refusing_is_the_default() -> None:
    with tiny_engine() as engine, pytest.raises(ContextOverflow, match="context window is 640"):
        play(engine, TURNS)


def test_the_engine_refuses_a_newest_turn_that_cannot_fit() -> None:
    with tiny_engine(overflow="drop_oldest") as engine:
        request = ChatRequest((SYSTEM, Message("user", "w" * 900)), sampling=GREEDY)
        with pytest.raises(ContextOverflow, match=r"message 1 \(user\) has about 9\d\d tokens"):
            engine.chat(request)
        assert engine.count_message_tokens(request) > 900
        assert len(play(engine, 3)) == 3


def test_a_restarted_engine_sends_the_same_text() -> None:
    with tiny_engine(overflow="sink_window") as engine:
        results = play(engine, 30)
    messages = [SYSTEM]
    for turn, result in enumerate(results):
        messages += [question(turn), result.message.without_handle()]
    with tiny_engine(overflow="sink_window") as fresh:
        again = fresh.chat(ChatRequest(tuple(messages[:-1]), sampling=GREEDY)).result()
    assert again.report.dropped_messages == results[-1].report.dropped_messages
    decode = byte_tokenizer().decode
    assert decode(again.prompt_ids) == decode(results[-1].prompt_ids)


def test_the_langchain_adapter_passes_it_on() -> None:
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

    from cachefriendly_lc import ChatCacheFriendly

    options = EngineConfig(overflow="drop_oldest", context_window=WINDOW, default_max_tokens=64)
    model = ChatCacheFriendly(
        llm=SimpleNamespace(
            model=tiny_model("llama"), tokenizer=byte_tokenizer(templates.NATIVE_TOOLS)
        ),
        engine_config=options,
        max_tokens=6,
        temperature=0,
    )
    messages: list[Any] = [SystemMessage(SYSTEM.content)]
    for turn in range(20):
        messages.append(HumanMessage(question(turn).content))
        reply = model.invoke(messages)
        assert isinstance(reply, AIMessage)
        messages.append(reply)
    check_reports(model.engine)


def test_the_llamaindex_adapter_passes_it_on() -> None:
    from llama_index.core.llms import ChatMessage

    from cachefriendly_li import CacheFriendlyLLM

    options = EngineConfig(overflow="drop_oldest", context_window=WINDOW, default_max_tokens=64)
    model = CacheFriendlyLLM(
        model=tiny_model("llama"),
        tokenizer=byte_tokenizer(templates.NATIVE_TOOLS),
        engine_config=options,
        max_new_tokens=6,
        generate_kwargs={"do_sample": False},
    )
    messages = [ChatMessage(role="system", content=SYSTEM.content)]
    for turn in range(20):
        messages.append(ChatMessage(role="user", content=question(turn).content))
        messages.append(model.chat(messages).message)
    check_reports(model.engine)


def check_reports(engine: Engine) -> None:
    reports = engine.reports()
    moved = [a.dropped_messages != b.dropped_messages for a, b in pairwise(reports)]
    assert 1 <= sum(moved) <= 4
    for changed, report in zip(moved, reports[1:], strict=True):
        assert report.prefilled_tokens <= (0.5 * WINDOW if changed else 80)
    engine.close()


@pytest.mark.parametrize("asked", [3, 5_000])
def test_a_reply_never_has_more_tokens_than_asked_for_or_than_fit(asked: int) -> None:
    """The stop token counts, too; a reply that meets the window ends there, with its reason."""
    with tiny_engine(context_window=200, overflow="drop_oldest") as engine:
        sampling = Sampling(max_tokens=asked, temperature=0)
        request = ChatRequest((SYSTEM, Message("user", "w" * 60)), sampling=sampling)
        result = engine.chat(request).result()
    room = 200 - result.report.prompt_tokens
    assert result.report.generated_tokens <= min(asked, room)
    if result.finish_reason == "length":
        assert len(result.output_ids) == min(asked, room)

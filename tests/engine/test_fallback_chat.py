"""Conversations through `Engine.chat` on the fallback runner, snapshots before each reply."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from cachefriendly import ChatRequest, Engine, EngineConfig, Message, MissReason, Sampling
from cachefriendly.testing import (
    byte_tokenizer,
    cold_logits,
    embedding_counter,
    recorded_logits,
    scripted_replies,
    templates,
)
from cachefriendly.testing.law import LogitRecord
from tests.engine.fallback_models import fallback_model

MakeEngine = Callable[..., Engine]
NAME = "qwen3_5_text"
THOUGHT = "<think>\nhm, let me see\n</think>\n\n"


@pytest.fixture(scope="module")
def cold() -> Any:
    return fallback_model(NAME)


@pytest.fixture
def make_engine() -> Iterator[MakeEngine]:
    made: list[Engine] = []

    def make(template: str, **config: Any) -> Engine:
        engine = Engine(fallback_model(NAME), byte_tokenizer(template), EngineConfig(**config))
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()


def ask(engine: Engine, talk: list[Message], reply: str | None = None, **request: Any) -> Any:
    """One call whose reply is appended to the talk; ``reply`` None: the model chooses 12 ids."""
    limit = 12 if reply is None else 200
    sampling = request.pop("sampling", Sampling(max_tokens=limit, temperature=0))
    asked = ChatRequest(tuple(talk), sampling=sampling, **request)
    script = [] if reply is None else [[*engine.token_ids(reply), engine.tokenizer.eos_token_id]]
    with scripted_replies(*script), embedding_counter(engine.model) as count:
        result = engine.chat(asked).result()
    assert count.tokens == result.report.forwarded_tokens
    talk.append(result.message)
    return result


def reasons(result: Any) -> list[MissReason]:
    return [loss.reason for loss in result.report.losses]


def head_of(engine: Engine, result: Any) -> int:
    """Prompt tokens in front of the generation prompt, counted by its opening control token."""
    start = engine.tokenizer.convert_tokens_to_ids("<|im_start|>")
    return len(result.prompt_ids) - 1 - result.prompt_ids[::-1].index(start)


@pytest.mark.parametrize("history", ["template", "exact"])
def test_a_rewritten_turn_starts_from_before_its_generation_prompt(
    make_engine: MakeEngine, cold: Any, history: str
) -> None:
    """The template drops reasoning of earlier turns: what was kept behind the reply is of no use,
    what was kept in front of it is."""
    engine = make_engine(templates.REASONING_DROPPED, history=history)
    assert engine.stats().runner == "fallback"
    talk = [Message("system", "Be brief."), Message("user", "One?")]
    with recorded_logits() as record:
        first = ask(engine, talk, THOUGHT + "1")
        for question in ("Two?", "Three?"):
            before = head_of(engine, first)
            talk.append(Message("user", question))
            second = ask(engine, talk, THOUGHT + question)
            assert second.report.reused_tokens == before
            assert MissReason.TEMPLATE_REWROTE_HISTORY in reasons(second)
            first = second
    for result in (first, second):
        check(record, cold, result)


def check(record: LogitRecord, cold: Any, result: Any) -> None:
    """Every logit along the call; choices may be scripted."""
    ids = result.prompt_ids + result.output_ids
    logits = LogitRecord([replace(step, chosen=None) for step in record.steps])
    logits.check(cold, ids, tol=1e-4 * float(cold_logits(cold, ids).abs().max()))


def test_an_appended_turn_starts_from_the_tip(make_engine: MakeEngine, cold: Any) -> None:
    engine = make_engine(templates.REASONING_DROPPED, history="append")
    talk = [Message("user", "One?")]
    with recorded_logits() as record:
        first = ask(engine, talk, THOUGHT + "1")
        talk.append(Message("user", "Two?"))
        second = ask(engine, talk)
    assert second.report.reused_tokens == len(first.prompt_ids + first.output_ids)
    assert second.report.losses == ()
    check(record, cold, second)


def test_the_same_question_again_starts_before_the_generation_prompt(
    make_engine: MakeEngine, cold: Any
) -> None:
    engine = make_engine(templates.CHATML)
    talk = [Message("user", "Tell me more about it.")]
    first = ask(engine, list(talk))
    with recorded_logits() as record:
        again = ask(engine, talk)
    assert again.report.reused_tokens == head_of(engine, first)
    assert again.output_ids == first.output_ids
    check(record, cold, again)


def test_conversations_share_their_system_message(make_engine: MakeEngine, cold: Any) -> None:
    engine = make_engine(templates.CHATML)
    system = Message("system", "You are a very patient assistant. " * 4)
    first = ask(engine, [system, Message("user", "One?")])
    with recorded_logits() as record:
        second = ask(engine, [system, Message("user", "Quite another thing?")])
    start = engine.tokenizer.convert_tokens_to_ids("<|im_start|>")
    assert second.report.reused_tokens == first.prompt_ids.index(start, 1) > 100
    check(record, cold, second)


def test_a_template_that_marks_the_newest_message(make_engine: MakeEngine, cold: Any) -> None:
    """From the third call on, what precedes the previous question is reused."""
    engine = make_engine(templates.LAST_MESSAGE_DIFFERS)
    talk = [Message("system", "Be brief."), Message("user", "One?")]
    ask(engine, talk, "1")
    talk.append(Message("user", "Two?"))
    second = ask(engine, talk, "2")
    talk.append(Message("user", "Three?"))
    with recorded_logits() as record:
        third = ask(engine, talk)
    start = engine.tokenizer.convert_tokens_to_ids("<|im_start|>")
    question = [at for at, i in enumerate(second.prompt_ids) if i == start][-2]
    assert third.report.reused_tokens == question
    check(record, cold, third)


def test_case_23_bytes_grow_by_tokens_and_one_state_per_snapshot(make_engine: MakeEngine) -> None:
    engine = make_engine(templates.REASONING_DROPPED)
    talk = [Message("system", "Be brief."), Message("user", "One?")]
    figures = []
    for number in range(6):
        ask(engine, talk, THOUGHT + f"answer {number}")
        cache = engine.stats().cache
        figures.append((cache.tokens, cache.states, cache.bytes))
        talk.append(Message("user", f"Question {number}?"))
    # Two unknowns, many equations: bytes = tokens x a + states x b, exactly.
    (t0, s0, b0), (t1, s1, b1), *rest = figures
    a, b = solve((t0, s0, b0), (t1, s1, b1))
    assert all(bytes_ == tokens * a + states * b for tokens, states, bytes_ in rest)
    engine.clear()
    assert engine.stats().cache.bytes == 0


def solve(first: tuple[int, int, int], second: tuple[int, int, int]) -> tuple[float, float]:
    (t0, s0, b0), (t1, s1, b1) = first, second
    determinant = t0 * s1 - t1 * s0
    return (b0 * s1 - b1 * s0) / determinant, (t0 * b1 - t1 * b0) / determinant


def test_case_24_a_reply_left_early(make_engine: MakeEngine, cold: Any) -> None:
    engine = make_engine(templates.CHATML)
    talk = [Message("user", "Tell me a long story about the sea.")]
    request = ChatRequest(tuple(talk), sampling=Sampling(max_tokens=100, temperature=0))
    stream = iter(engine.chat(request))
    shown = ""
    for event in stream:
        shown += getattr(event, "text", "")
        if len(shown) > 3:
            break
    stream.close()  # type: ignore[attr-defined]
    before = engine.prompt_ids(request)
    while (core := engine.stats().core).running + core.waiting:
        pass
    talk += [Message("assistant", shown), Message("user", "Stop.")]
    with recorded_logits() as record:
        second = ask(engine, talk)
    assert second.prompt_ids[: len(before)] == before
    assert second.report.reused_tokens >= len(before) - len("<|im_start|>assistant\n")
    assert set(reasons(second)) <= {MissReason.NOT_CROPPABLE}
    check(record, cold, second)


def test_a_stop_string_is_no_harm(make_engine: MakeEngine, cold: Any) -> None:
    """The ids behind the stop string were forwarded; a state that cannot go back is not kept."""
    engine = make_engine(templates.CHATML)
    talk = [Message("user", "Count.")]
    sampling = Sampling(max_tokens=100, temperature=0, stop=("three",))
    first = ask(engine, talk, "one two three four", sampling=sampling)
    assert first.message.content == "one two "
    talk.append(Message("user", "Go on."))
    with recorded_logits() as record:
        second = ask(engine, talk)
    assert second.report.reused_tokens == head_of(engine, first)
    check(record, cold, second)


def test_case_17_an_edited_history(make_engine: MakeEngine, cold: Any) -> None:
    engine = make_engine(templates.CHATML)
    talk = [Message("user", "Capital of France, please?")]
    first = ask(engine, talk, "Paris")
    edited = [Message("user", "Capital of Spain, please?"), talk[1], Message("user", "Sure?")]
    with recorded_logits() as record:
        second = ask(engine, edited)
    assert second.report.reused_tokens < head_of(engine, first)
    assert MissReason.MESSAGE_EDITED in reasons(second)
    check(record, cold, second)


def test_a_prefill_is_reused(make_engine: MakeEngine, cold: Any) -> None:
    engine = make_engine(templates.CHATML)
    talk = [Message("user", "A tool runs while this is read.")]
    ahead = engine.prefill(ChatRequest(tuple(talk), session="s")).result()
    with recorded_logits() as record:
        result = ask(engine, talk, session="s")
    assert result.report.reused_tokens == len(ahead.prompt_ids)
    check(record, cold, result)


def test_namespaces_are_separate_and_forgotten(make_engine: MakeEngine) -> None:
    engine = make_engine(templates.CHATML)
    talk = [Message("user", "Hello there.")]
    ask(engine, list(talk), namespace="a")
    other = ask(engine, list(talk), namespace="b")
    assert other.report.reused_tokens == 0
    engine.forget(namespace="a")
    engine.forget(namespace="b")
    assert engine.stats().cache.bytes == 0

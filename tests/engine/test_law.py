"""The cache changes speed, never output: every path of the engine against transformers alone.

`check` compares the logits of every step along the engine's ids with one cold forward of a model
that no engine ever touched; free-running ids are compared with transformers' own ``generate``.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cachefriendly.engine.token_engine import TokenEngine
from cachefriendly.rows import GenerateRequest, RowDone, RowTokens
from cachefriendly.testing import (
    LogitRecord,
    cold_generate,
    embedding_counter,
    recorded_logits,
)

TOL = 1e-3  # absolute, demo model in float32: transformers differs from itself by 1.1e-4

STORY = (
    "Here is a story. A fisherman lived by the sea with his wife in a small hut. Every day he went "
    "out to catch fish, and one day he caught a golden fish that could speak. What did it say?"
)


def same_as_generate(model: Any, request: GenerateRequest, done: RowDone, **options: Any) -> None:
    """Equal ids, the stop token that `generate` appends aside."""
    expected = cold_generate(
        model, request.prompt_ids, max_new_tokens=request.sampling.max_tokens, **options
    )
    assert list(done.output_ids) == expected[: len(done.output_ids)]
    assert len(expected) - len(done.output_ids) == (done.reason == "stop")


def lawful(record: LogitRecord, model: Any, *conversations: tuple[int, ...]) -> None:
    for ids in conversations:
        record.check(model, ids, tol=TOL)


def test_continue_forwards_only_what_is_new(
    tokens: TokenEngine, demo_model: Any, ids_of: Any, request_of: Any, chunked_engine: Any
) -> None:
    prompt = ids_of(STORY)
    with recorded_logits() as record:
        first = tokens.run(request_of(prompt))
        longer = prompt + first.output_ids + ids_of("And then?")
        with embedding_counter(chunked_engine.model) as count:
            second = tokens.run(request_of(longer))
        assert count.tokens == second.forwarded_tokens
    same_as_generate(demo_model, request_of(prompt), first)
    same_as_generate(demo_model, request_of(longer), second)
    lawful(record, demo_model, longer + second.output_ids)
    assert second.reused_tokens == len(prompt) + len(first.output_ids) - (first.reason == "length")
    assert second.prefilled_tokens == len(longer) - second.reused_tokens


def test_chunked_prefill(
    tokens: TokenEngine, demo_model: Any, ids_of: Any, request_of: Any, chunked_engine: Any
) -> None:
    prompt = ids_of(STORY * 3)
    with recorded_logits() as record, embedding_counter(chunked_engine.model) as count:
        done = tokens.run(request_of(prompt, 8))
    assert max(map(len, count.ids)) == 32
    assert count.forwards >= len(prompt) // 32
    same_as_generate(demo_model, request_of(prompt, 8), done)
    lawful(record, demo_model, prompt + done.output_ids)


def test_crop_to_the_middle_of_a_reply(
    tokens: TokenEngine, demo_model: Any, ids_of: Any, request_of: Any
) -> None:
    prompt = ids_of(STORY)
    first = tokens.run(request_of(prompt))
    edited = prompt + first.output_ids[:5] + ids_of("Say it differently.")
    with recorded_logits() as record:
        second = tokens.run(request_of(edited))
    assert second.reused_tokens == len(prompt) + 5
    same_as_generate(demo_model, request_of(edited), second)
    lawful(record, demo_model, edited + second.output_ids)
    # What was cropped away is untouched for whoever still wants it.
    again = tokens.run(request_of(prompt))
    assert again.output_ids == first.output_ids


def test_two_children_fork_one_tip_at_once(
    tokens: TokenEngine, demo_model: Any, ids_of: Any, request_of: Any, chunked_engine: Any
) -> None:
    prompt = ids_of(STORY)
    parent = tokens.run(request_of(prompt))
    tip = prompt + parent.output_ids
    children = [tip + ids_of(text) for text in ("What did he ask for?", "Where did it happen?")]
    with recorded_logits() as record, embedding_counter(chunked_engine.model) as count:
        done = run_together(tokens, [request_of(ids) for ids in children])
    for ids, child in zip(children, done, strict=True):
        assert child.reused_tokens >= len(tip) - 1
        same_as_generate(demo_model, request_of(ids), child)
        lawful(record, demo_model, ids + child.output_ids)
    # Both ran in the same forwards: fewer than one after the other would need.
    assert count.forwards < sum(1 + child.sampled_tokens for child in done)
    assert count.tokens == sum(child.forwarded_tokens for child in done)


def test_unequal_batch_equals_single_runs(
    tokens: TokenEngine, demo_model: Any, ids_of: Any, request_of: Any, chunked_engine: Any
) -> None:
    """CASES 18: every row of a batch of unequal lengths equals its own single run."""
    prompts = [ids_of(text) for text in ("Hi", STORY, "Name three colours.", STORY[:90])]
    with recorded_logits() as record, embedding_counter(chunked_engine.model) as count:
        done = run_together(tokens, [request_of(ids) for ids in prompts])
    assert count.forwards < sum(row.sampled_tokens for row in done)
    for ids, row in zip(prompts, done, strict=True):
        same_as_generate(demo_model, request_of(ids), row)
        lawful(record, demo_model, ids + row.output_ids)


def test_two_callers_share_each_forward(
    tokens: TokenEngine, ids_of: Any, request_of: Any, chunked_engine: Any
) -> None:
    """Two requests that wait at the same time decode in the same forwards, to the count."""
    pair = [request_of(ids_of(text), 6, extra={"min_new_tokens": 6}) for text in ("One?", "Two?")]
    with embedding_counter(chunked_engine.model) as count:
        done = run_together(tokens, pair)
    assert [len(row.output_ids) for row in done] == [6, 6]
    prefills = sum(len(ids) > 2 for ids in count.ids)
    assert count.forwards - prefills <= 6
    assert any(len(ids) == 2 for ids in count.ids)


def test_two_conversations_interleaved(
    tokens: TokenEngine, demo_model: Any, ids_of: Any, request_of: Any
) -> None:
    talks = [ids_of(STORY), ids_of("Tell me about the moon.")]
    with recorded_logits() as record:
        for turn in ("Go on.", "Why?"):
            for index, ids in enumerate(talks):
                done = tokens.run(request_of(ids, 8))
                same_as_generate(demo_model, request_of(ids, 8), done)
                talks[index] = ids + done.output_ids + ids_of(turn)
    lawful(record, demo_model, *talks)


def test_cancel_in_the_middle_keeps_what_is_certain(
    tokens: TokenEngine, demo_model: Any, ids_of: Any, request_of: Any, chunked_engine: Any
) -> None:
    prompt = ids_of(STORY)
    running = tokens.submit(request_of(prompt, 40))
    seen: tuple[int, ...] = ()
    while len(seen) < 5:
        event = running.channel.get()
        assert isinstance(event, RowTokens)
        seen += event.ids
    running.cancel()
    follow = prompt + seen + ids_of("Stop. Summarise.")
    with recorded_logits() as record, embedding_counter(chunked_engine.model) as count:
        done = tokens.run(request_of(follow))
    # The engine may have been a token ahead of what we read; it is never behind.
    assert done.reused_tokens >= len(prompt) + len(seen) - 1
    assert done.forwarded_tokens <= count.tokens <= done.forwarded_tokens + 1
    same_as_generate(demo_model, request_of(follow), done)
    lawful(record, demo_model, follow + done.output_ids)


def test_stop_string_cuts_and_the_next_call_is_exact(
    tokens: TokenEngine, demo_model: Any, demo_tokenizer: Any, ids_of: Any, request_of: Any
) -> None:
    prompt = ids_of("Count from one to ten in words, separated by commas.")
    free = tokens.run(request_of(prompt, 24))
    text = demo_tokenizer.decode(free.output_ids)
    stop = text[12:17]
    tokens.clear()
    done = tokens.run(request_of(prompt, 24, stop=(stop,)))
    shown = demo_tokenizer.decode(done.output_ids) + done.stop_text
    assert done.reason == "stop_string"
    assert shown == text[: text.index(stop)]
    assert free.output_ids[: len(done.output_ids)] == done.output_ids
    follow = prompt + done.output_ids + ids_of("Go on.")
    with recorded_logits() as record:
        second = tokens.run(request_of(follow))
    assert second.reused_tokens >= len(prompt) + len(done.output_ids) - 1
    same_as_generate(demo_model, request_of(follow), second)
    lawful(record, demo_model, follow + second.output_ids)


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.3},
        {"extra": {"no_repeat_ngram_size": 3}},
        {"extra": {"min_new_tokens": 12}},
    ],
    ids=["repetition penalty", "no repeated 3-grams", "minimum length"],
)
def test_transformers_own_processors(
    tokens: TokenEngine, demo_model: Any, ids_of: Any, request_of: Any, options: dict[str, Any]
) -> None:
    """Warm, so that a processor that saw only the new ids would differ."""
    prompt = ids_of(STORY)
    tokens.run(request_of(prompt))
    request = request_of(prompt + ids_of("Again, please."), **options)
    done = tokens.run(request)
    assert done.reused_tokens >= len(prompt)
    plain = {k: v for k, v in options.items() if k != "extra"} | options.get("extra", {})
    same_as_generate(demo_model, request, done, **plain)


def test_a_seed_gives_the_same_ids_alone_and_in_a_batch(
    tokens: TokenEngine, ids_of: Any, request_of: Any
) -> None:
    request = request_of(ids_of(STORY), 10)
    sampled = [
        GenerateRequest(request.prompt_ids, replace_sampling(request, temperature=1.0, seed=seed))
        for seed in (1, 2, 3)
    ]
    alone = [tokens.run(r).output_ids for r in sampled]
    tokens.clear()
    together = [row.output_ids for row in run_together(tokens, sampled)]
    assert together == alone
    assert len(set(alone)) > 1


def replace_sampling(request: GenerateRequest, **options: Any) -> Any:
    from dataclasses import replace

    return replace(request.sampling, **options)


def run_together(tokens: TokenEngine, requests: list[GenerateRequest]) -> list[RowDone]:
    """Submit from as many threads, started at one moment, and wait for all."""
    gate = threading.Barrier(len(requests))

    def run(request: GenerateRequest) -> RowDone:
        gate.wait()
        return tokens.run(request)

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(run, requests))

"""Cases 10, 11 and 13 in LlamaIndex form: what a tiny model really forwards."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from llama_index.core import memory as stock
from llama_index.core.base.llms.types import ChatMessage, TextBlock
from llama_index.core.memory import BaseMemory, StaticMemoryBlock

from cachefriendly import CacheReport, Engine, MissReason
from cachefriendly.testing import EmbeddingCount, byte_tokenizer, embedding_counter, tiny_model
from cachefriendly_li import (
    AnchoredPrompt,
    CacheFriendlyLLM,
    ChatMemoryBuffer,
    ChatSummaryMemoryBuffer,
    Memory,
)

LIMIT = 600
RULES = ChatMessage(role="system", content="Be brief. " * 10)


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(tiny_model(num_hidden_layers=1), byte_tokenizer()) as tiny:
        yield tiny


@pytest.fixture
def embedded(engine: Engine) -> Iterator[EmbeddingCount]:
    with embedding_counter(engine.model) as count:
        yield count


def turn(memory: BaseMemory, engine: Engine, question: str, system: ChatMessage = RULES) -> Any:
    """One turn as chat engines have it; the report of its answer."""
    llm = CacheFriendlyLLM(engine=engine, max_new_tokens=6, session_id="s")
    memory.put(ChatMessage(role="user", content=question))
    reply = llm.chat([system, *memory.get()]).message
    report = engine.last_report
    memory.put(reply)
    return report


def new_tokens(before: CacheReport, after: CacheReport) -> int:
    """Tokens that a prompt has beyond everything held; the last sampled one was not forwarded."""
    return after.prompt_tokens - (before.prompt_tokens + before.generated_tokens) + 1


def buffer(engine: Engine) -> BaseMemory:
    llm = CacheFriendlyLLM(engine=engine, max_new_tokens=6)
    return ChatMemoryBuffer.from_defaults(llm=llm, token_limit=LIMIT)


def summary_buffer(engine: Engine) -> BaseMemory:
    llm = CacheFriendlyLLM(engine=engine, max_new_tokens=20)
    return ChatSummaryMemoryBuffer.from_defaults(llm=llm, token_limit=LIMIT)


def database(engine: Engine) -> BaseMemory:
    return Memory.from_defaults(
        llm=CacheFriendlyLLM(engine=engine),
        token_limit=LIMIT,
        token_flush_size=LIMIT // 10,
        chat_history_token_ratio=1.0,
    )


def stock_buffer(engine: Engine) -> BaseMemory:
    llm = CacheFriendlyLLM(engine=engine)
    return stock.ChatMemoryBuffer.from_defaults(token_limit=LIMIT, tokenizer_fn=llm.tokenize)


@pytest.mark.parametrize("kind", [buffer, summary_buffer, database])
def test_case_13_never_the_whole_window_twice_in_a_row(
    engine: Engine, embedded: EmbeddingCount, kind: Any
) -> None:
    """32 turns, seven windows long. What is forwarded is counted at the embedding."""
    memory, forwarded, reports = kind(engine), [], []
    for number in range(32):
        embedded.reset()
        reports.append(turn(memory, engine, f"Question {number:02}: " + "why " * 25))
        forwarded.append(embedded.tokens)
    prompts = [report.prompt_tokens for report in reports]
    question = 140  # bytes of a question with what the template adds, and of a reply
    again = [tokens > question for tokens in forwarded[1:]]
    assert 0 < sum(again) <= 9
    assert not any(a and b for a, b in pairwise(again))
    for (before, after), cut in zip(pairwise(reports), again, strict=True):
        if not cut:  # its own message, and nothing that was held
            assert after.prefilled_tokens == new_tokens(before, after)
            assert after.losses == ()
    assert max(prompts) < LIMIT + 300
    assert max(forwarded) < LIMIT + 300
    assert sum(forwarded) < 0.5 * sum(prompts)


def test_case_13_the_stock_buffer_forwards_the_window_at_every_turn(engine: Engine) -> None:
    memory = stock_buffer(engine)
    reports = [turn(memory, engine, f"Question {n:02}: " + "why " * 25) for n in range(10)]
    full = [report.prefilled_tokens > 300 for report in reports[6:]]
    assert all(full)


def test_case_11_an_edited_block_prefills_only_itself(engine: Engine) -> None:
    block = StaticMemoryBlock(name="persona", static_content=[TextBlock(text="Ada likes tea.")])
    memory = Memory.from_defaults(memory_blocks=[block], llm=CacheFriendlyLLM(engine=engine))
    reports = [turn(memory, engine, "Who am I?"), turn(memory, engine, "And you?")]
    block.static_content[0] = TextBlock(text="Ada likes coffee.")
    reports += [turn(memory, engine, "What do I like?"), turn(memory, engine, "Sure?")]
    for before, after in pairwise(reports):
        assert after.losses == ()
        assert after.prefilled_tokens == new_tokens(before, after)
    edited, plain = (new_tokens(*reports[i : i + 2]) for i in (1, 2))
    said = len("<memory>\n<persona>\nAda likes coffee.\n</persona>\n</memory>\n")
    assert edited - plain == said + len("What do I like?") - len("Sure?")


def test_case_11_in_the_stock_layout_everything_behind_it_is_lost(engine: Engine) -> None:
    block = StaticMemoryBlock(name="persona", static_content=[TextBlock(text="Ada likes tea.")])
    memory = Memory.from_defaults(
        memory_blocks=[block], llm=CacheFriendlyLLM(engine=engine), layout="stock"
    )
    first = turn(memory, engine, "Who am I? " * 20)
    block.static_content[0] = TextBlock(text="Ada likes coffee.")
    second = turn(memory, engine, "What do I like?")
    assert second.prefilled_tokens > first.prompt_tokens / 2
    assert second.losses


def test_case_10_a_clock_in_the_system_prompt(engine: Engine) -> None:
    """With an anchor the prefix is kept; without one the report says what changed, and where."""
    text = "You help. It is {}. " + "Be kind. " * 20
    moments = [f"2026-11-30 08:00:00.{ms:03}" for ms in (123, 457, 891)]
    anchored = AnchoredPrompt.from_template(text.format("[TIME_STAMP_23]"))
    memory = buffer(engine)
    reports = [
        turn(memory, engine, f"Question {i}?", anchored.message(time_stamp=moment))
        for i, moment in enumerate(moments)
    ]
    for before, after in pairwise(reports):
        assert after.losses == ()
        assert after.prefilled_tokens == new_tokens(before, after)

    engine.clear()
    memory = buffer(engine)
    filled = [ChatMessage(role="system", content=text.format(moment)) for moment in moments]
    plain = [turn(memory, engine, f"Question {i}?", system) for i, system in enumerate(filled)]
    for report, before, after in zip(plain[1:], moments, moments[1:], strict=False):
        loss = report.losses[0]
        assert loss.reason is MissReason.VOLATILE_FIELD
        assert (loss.message_index, loss.field) == (0, "system")
        assert before[-3:] in loss.before
        assert after[-3:] in loss.after
        assert report.prefilled_tokens > 180

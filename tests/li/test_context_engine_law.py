"""Chat engines over documents on a tiny model: what a turn forwards, and that it is exact."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from llama_index.core.chat_engine import ContextChatEngine as StockContextChatEngine
from llama_index.core.memory import ChatMemoryBuffer as StockChatMemoryBuffer

from cachefriendly import Engine, EngineConfig
from cachefriendly.testing import embedding_counter, tiny_model
from cachefriendly_li import (
    CacheFriendlyLLM,
    CondensePlusContextChatEngine,
    ContextChatEngine,
)
from tests.li.documents import FORMS, WordRetriever, ask
from tests.li.watch import TOKENIZER, Watch

QUESTIONS = ["The pool?", "And the tram?", "Breakfast and the pool?"]
SYSTEM = "You are the receptionist of a hotel. Answer in one short sentence."
SHORT = {"context_template": "Notes: {context_str}"}


@pytest.fixture
def tiny(tiny_engine: Engine) -> CacheFriendlyLLM:
    return llm_on(tiny_engine)


@pytest.fixture(scope="module")
def plain_engine() -> Iterator[Engine]:
    """The same model, every prompt forwarded whole."""
    with Engine(tiny_model("llama"), TOKENIZER, EngineConfig(reuse=False)) as engine:
        yield engine


def llm_on(engine: Engine, **options: Any) -> CacheFriendlyLLM:
    greedy = {"do_sample": False}
    return CacheFriendlyLLM(engine=engine, max_new_tokens=5, generate_kwargs=greedy, **options)


def context(llm: Any, **options: Any) -> Any:
    return ContextChatEngine.from_defaults(
        WordRetriever(), llm=llm, system_prompt=SYSTEM, **{**SHORT, **options}
    )


def condensing(llm: Any, **options: Any) -> Any:
    """A random model condenses to noise, so something is found for any question."""
    return CondensePlusContextChatEngine.from_defaults(
        WordRetriever({"": "The hotel is old."}),
        llm=llm,
        system_prompt=SYSTEM,
        context_prompt=SHORT["context_template"],
        condense_prompt="{chat_history} Rephrase: {question}",
        **options,
    )


def held_after(report: Any) -> int:
    """The last id a call generates (a stop token, or one at the limit) is never forwarded."""
    return int(report.prompt_tokens + report.generated_tokens - 1)


@pytest.mark.parametrize("form", FORMS)
async def test_a_turn_forwards_its_nodes_and_its_question(
    tiny: CacheFriendlyLLM, tiny_watch: Watch, form: str
) -> None:
    """Case 15, to the token: the embedding saw the same."""
    chat = context(tiny)
    for question in QUESTIONS:
        await ask(chat, form, question)
    tiny_watch.check_warm(3)
    nodes = "Notes: The tram leaves every ten minutes.\n\nAnd the tram?"
    turn = f"<|im_end|>\n<|im_start|>user\n{nodes}<|im_end|>\n<|im_start|>assistant\n"
    # The reply was cut at its limit, so its last id is forwarded with the next turn.
    assert tiny_watch.reports[1].prefilled_tokens == len(TOKENIZER(turn).input_ids) + 1


async def test_the_stock_engine_begins_anew_each_turn(
    tiny: CacheFriendlyLLM, tiny_watch: Watch
) -> None:
    chat = StockContextChatEngine.from_defaults(
        WordRetriever(),
        llm=tiny,
        system_prompt=SYSTEM,
        memory=StockChatMemoryBuffer.from_defaults(),
        **SHORT,
    )
    for question in QUESTIONS[:2]:
        await ask(chat, "chat", question)
    report = tiny_watch.reports[1]
    assert report.reused_tokens == 1 + len("system\nNotes: The ")
    assert report.losses[0].field == "system"


@pytest.mark.parametrize("make", [context, condensing])
async def test_reuse_changes_no_answer(
    tiny: CacheFriendlyLLM, plain_engine: Engine, make: Any
) -> None:
    plain = llm_on(plain_engine)
    answers = []
    for llm in (tiny, plain):
        chat = make(llm)
        answers.append([str(await ask(chat, "chat", question)) for question in QUESTIONS])
        answers[-1] += [m.content for m in chat._memory.get_all()]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("form", ["chat", "astream"])
async def test_condensing_is_a_branch_of_the_conversation(
    tiny: CacheFriendlyLLM, tiny_watch: Watch, form: str
) -> None:
    chat = condensing(tiny)
    for question in QUESTIONS[:2]:
        await ask(chat, form, question)
    first, branch, second = tiny_watch.reports
    assert branch.reused_tokens == held_after(first)
    asked = "<|im_end|>\n<|im_start|>user\n(the conversation above) Rephrase: And the tram?"
    asked += "<|im_end|>\n<|im_start|>assistant\n"
    assert branch.prefilled_tokens == len(TOKENIZER(asked).input_ids) + 1
    # What opens a user message was forwarded by the branch already.
    assert second.reused_tokens >= held_after(first)


@pytest.mark.parametrize("stock", [False, True])
def test_condensing_evicts_nothing_of_the_conversation(stock: bool) -> None:
    """Where the conversation just fits, a copy of it drives it out; a branch cannot."""
    with Engine(tiny_model("llama"), TOKENIZER, EngineConfig(kv_bytes=512 * 700)) as engine:
        chat = condensing(llm_on(engine))
        chat.chat("The pool? " * 20)
        (first,) = engine.reports()
        chat._layout = "stock" if stock else "tail"
        chat._condense_question(chat._memory.get(), "And the tram? " * 10)
        chat._layout, chat._skip_condense = "tail", True
        chat.chat("And the tram?")
        evicted = engine.stats().cache.evicted_tokens
        assert (engine.last_report.reused_tokens >= held_after(first)) is not stock, evicted


async def test_a_stream_left_early_and_the_next_turn(
    tiny: CacheFriendlyLLM, tiny_watch: Watch
) -> None:
    """Case 24: the reply was generated to its end and nothing of it is forwarded again."""
    chat = context(tiny)
    reader = chat.stream_chat(QUESTIONS[0]).response_gen
    next(reader)
    reader.close()
    areader = (await chat.astream_chat(QUESTIONS[1])).async_response_gen()
    await anext(areader)
    await areader.aclose()
    await ask(chat, "achat", QUESTIONS[2])
    tiny_watch.check_warm(3)


def test_engines_that_share_an_llm_run_in_parallel(tiny_engine: Engine) -> None:
    def talk(name: str) -> list[str]:
        make = condensing if name.startswith("c") else context
        chat = make(llm_on(tiny_engine, cache_namespace=name))
        return [chat.chat(question).response for question in QUESTIONS]

    alone = {kind: talk(f"{kind} alone") for kind in ("condensing", "context")}
    names = [f"{kind} {number}" for number in range(2) for kind in alone]
    with ThreadPoolExecutor(len(names)) as pool:
        together = dict(zip(names, pool.map(talk, names), strict=True))
    assert all(answers == alone[name.split()[0]] for name, answers in together.items())


async def test_nodes_that_do_not_fit_are_refined_over_behind_one_history(
    tiny: CacheFriendlyLLM, tiny_engine: Engine
) -> None:
    """Each part is a branch behind the same history; the last is what the next turn continues."""
    pools = " ".join(f"Pool number {number} is deep." for number in range(120))
    chat = ContextChatEngine.from_defaults(
        WordRetriever({"tram": "Trams run.", "pools": pools}),
        llm=tiny,
        system_prompt=SYSTEM,
        context_refine_template="More: {context_msg} So far: {existing_answer}",
        **SHORT,
    )
    before = len(tiny_engine.reports())
    with embedding_counter(tiny_engine.model) as seen:
        await ask(chat, "chat", "The tram?")
        await ask(chat, "achat", "The pools?")
        await ask(chat, "chat", "The tram?")
    first, *parts, last = tiny_engine.reports()[before:]
    assert len(parts) > 2
    assert all(part.reused_tokens >= held_after(first) for part in parts)
    assert last.reused_tokens == held_after(parts[-1])
    assert seen.tokens == sum(r.forwarded_tokens for r in (first, *parts, last))
    stored = chat._memory.get_all()[2].content
    assert stored.startswith("More: ")
    assert "Pool number 119 is deep. So far: " in stored
    assert stored.endswith("\n\nThe pools?")
    assert chat.chat_history[2].content == "The pools?"

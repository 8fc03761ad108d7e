"""While tools run, the next prompt is forwarded as far as it is certain, and no token twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from cachefriendly import Engine, EngineConfig
from cachefriendly.testing import (
    EmbeddingCount,
    byte_tokenizer,
    embedding_counter,
    scripted_replies,
    templates,
    tiny_model,
)
from cachefriendly.testing.tokenizer import END_ID
from tests.lc.early import FORMS, Journal, agent_of, run
from tests.lc.usage import forwarded_for, held_after

TOKENIZER = byte_tokenizer(templates.NATIVE_TOOLS)
ORDERS = [order for count in (1, 2, 3) for order in permutations(range(count))]


HEADER = tuple(TOKENIZER("\n<|im_start|>tool\n<tool_response>\n").input_ids)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(tiny_model("llama"), TOKENIZER) as tiny:
        yield tiny


@pytest.fixture
def embedded(engine: Engine) -> Iterator[EmbeddingCount]:
    engine.clear()
    with embedding_counter(engine.model) as count:
        yield count


def ids_of(text: str) -> list[int]:
    return [*TOKENIZER(text).input_ids, END_ID]


def calls_text(count: int) -> str:
    call = '<tool_call>\n{{"name": "tool{}", "arguments": {{"text": "x"}}}}\n</tool_call>'
    return "\n".join(call.format(number) for number in range(count))


def tools_ending_in(order: tuple[int, ...]) -> list[StructuredTool]:
    """Tools of which each one waits for the one that shall end before it."""
    ended = [threading.Event() for _ in order]

    def tool(number: int) -> StructuredTool:
        place = order.index(number)

        def work(text: str) -> str:
            assert place == 0 or ended[order[place - 1]].wait(10)
            ended[number].set()
            return f"result {number} of {text}"

        return StructuredTool.from_function(work, name=f"tool{number}", description="Works.")

    return [tool(number) for number in range(len(order))]


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("early", [False, True], ids=["ordinary", "early"])
async def test_scaffold_and_results_are_forwarded_exactly_once(
    engine: Engine, embedded: EmbeddingCount, order: tuple[int, ...], early: bool
) -> None:
    tools = tools_ending_in(order)
    agent = agent_of(engine, tools, early=tools if early else ())
    config = {"configurable": {"thread_id": f"{order} {early}", "cache_namespace": str(order)}}
    with scripted_replies(ids_of(calls_text(len(order))), ids_of("Done.")):
        _, asked, *results, _ = await run(agent, "invoke", config)
    assert [m.content for m in results] == [f"result {n} of x" for n in range(len(order))]
    report = engine.last_report
    assert report is not None
    new = report.prompt_tokens - held_after(asked)  # type: ignore[arg-type]
    assert report.prefilled_tokens + report.background_prefilled_tokens == new
    assert embedded.tokens == forwarded_for(asked) + new + report.generated_tokens - 1  # type: ignore[arg-type]
    assert early or report.background_prefilled_tokens >= len(HEADER)
    assert report.losses == ()


@pytest.mark.parametrize("form", FORMS)
async def test_the_turn_is_closed_and_the_tool_header_written_while_the_tool_runs(
    engine: Engine, embedded: EmbeddingCount, form: str
) -> None:
    seen: list[tuple[int, ...]] = []

    def work(text: str) -> str:
        _until(lambda: embedded.ids[-1][-len(HEADER) :] == HEADER)
        seen.extend(embedded.ids[-1:])
        return text

    tool = StructuredTool.from_function(work, name="tool0", description="Works.")
    config = {"configurable": {"thread_id": form, "cache_namespace": form}}
    with scripted_replies(ids_of(calls_text(1)), ids_of("Done.")):
        await run(agent_of(engine, [tool]), form, config)
    assert [ids[-len(HEADER) :] for ids in seen] == [HEADER]


@pytest.mark.parametrize("form", FORMS)
async def test_a_result_is_forwarded_while_another_tool_runs(
    engine: Engine, embedded: EmbeddingCount, form: str
) -> None:
    result = (*TOKENIZER("first of x\n</tool_response>").input_ids, END_ID, *HEADER)

    def wait(text: str) -> str:
        _until(lambda: embedded.ids[-1][-len(result) :] == result)
        return f"second of {text}"

    works = {"tool0": lambda text: f"first of {text}", "tool1": wait}
    tools = [
        StructuredTool.from_function(w, name=n, description="Works.") for n, w in works.items()
    ]
    config = {"configurable": {"thread_id": form, "cache_namespace": f"two {form}"}}
    with scripted_replies(ids_of(calls_text(2)), ids_of("Done.")):
        messages = await run(agent_of(engine, tools), form, config)
    assert [m.content for m in messages[2:]] == ["first of x", "second of x", "Done."]


@pytest.mark.parametrize("form", FORMS)
async def test_two_tools_are_done_while_the_model_still_computes_its_turn(
    engine: Engine, form: str
) -> None:
    """The model's own forward waits here: it goes on only once both tools are done."""
    journal = Journal()
    tools = [journal.tool(f"tool{n}", asynchronous=n == 1 and form[0] == "a") for n in range(2)]
    marker = TOKENIZER("~").input_ids[0]

    def wait(module: Any, inputs: Any) -> None:
        if inputs[0].flatten().tolist() == [marker]:
            done = [journal.wait_for(f"tool{n} ends") for n in range(2)]
            journal.write("the turn goes on" if all(done) else "a tool did not start")

    hook = engine.model.get_input_embeddings().register_forward_pre_hook(wait)
    config = {"configurable": {"thread_id": f"early {form}"}}
    with scripted_replies(ids_of(calls_text(2) + "\nWait ~ a bit."), ids_of("Done.")):
        messages = await run(agent_of(engine, tools, early=["tool0", "tool1"]), form, config)
    hook.remove()
    assert journal.entries[-1] == "the turn goes on"
    assert sorted(journal.entries[:-1]) == [f"tool{n} {what}" for n in (0, 1) for what in TOLD]
    assert [m.content for m in messages[2:]] == ["tool0 of x", "tool1 of x", "Done."]


TOLD = ("begins", "ends")


def _until(condition: Any, timeout: float = 10) -> None:
    moment = threading.Event()
    for _ in range(int(timeout / 0.01)):
        if condition():
            return
        moment.wait(0.01)
    raise AssertionError("it never happened")


async def test_nothing_is_prefilled_where_nothing_is_kept() -> None:
    scripts = scripted_replies(ids_of(calls_text(1)), ids_of("Done."))
    with Engine(tiny_model("llama"), TOKENIZER, EngineConfig(reuse=False)) as engine:
        with scripts, embedding_counter(engine.model) as count:
            await run(agent_of(engine, tools_ending_in((0,))), "invoke")
        reports = engine.reports()
    assert count.tokens == sum(report.forwarded_tokens for report in reports)

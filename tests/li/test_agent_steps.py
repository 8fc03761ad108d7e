"""What each step of an agent costs: its own new tokens, in a turn and across turns."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context

from cachefriendly.testing import scripted_replies
from cachefriendly_li import CacheFriendlyLLM, FunctionAgent
from tests.li.agents import add, until
from tests.li.watch import TOKENIZER, Watch, call_text, ids_of

# Workflows look at every attribute of an agent, deprecated ones of pydantic included.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")

ADD = ids_of(call_text("add", '{"a": 2, "b": 3}'))
DONE = ids_of("It is 5.")
HEADER = tuple(TOKENIZER("\n<|im_start|>tool\n<tool_response>\n").input_ids)
RUNS = [((0,), False), ((1, 0), False), ((1, 0), True)]


@pytest.fixture
def llm(tiny_llm: CacheFriendlyLLM) -> CacheFriendlyLLM:
    """In a session: what is forwarded beside its calls is told with its next one."""
    return tiny_llm.model_copy(update={"session_id": "s", "max_new_tokens": 250})


async def test_each_step_and_each_run_prefills_only_what_is_new(
    llm: CacheFriendlyLLM, tiny_watch: Watch
) -> None:
    agent = FunctionAgent(tools=[add], llm=llm, system_prompt="Be brief.")
    context = Context(agent)
    with scripted_replies(ADD, ADD, DONE, DONE):
        await agent.run("2 + 3?", ctx=context)
        await agent.run("Sure?", ctx=context)
    reports = tiny_watch.reports
    assert len(reports) == 4
    for before, after in pairwise(reports):
        held = before.prompt_tokens + before.generated_tokens - 1
        new = after.prompt_tokens - held
        assert after.prefilled_tokens + after.background_prefilled_tokens == new
        assert new < 80
        assert after.losses == ()
    fed_back = sum(report.generated_tokens - 1 for report in reports)
    ahead = sum(report.background_prefilled_tokens for report in reports)
    assert tiny_watch.seen.tokens == fed_back + ahead + sum(r.prefilled_tokens for r in reports)


def tools_ending_in(order: tuple[int, ...]) -> list[FunctionTool]:
    """Tools of which each one waits for the one that shall end before it."""
    ended = [asyncio.Event() for _ in order]

    def tool(number: int) -> FunctionTool:
        place = order.index(number)

        async def work(text: str) -> str:
            if place:
                await asyncio.wait_for(ended[order[place - 1]].wait(), 10)
                await asyncio.sleep(0.02)  # the step of the one before ends first
            ended[number].set()
            return f"result {number} of {text}"

        return FunctionTool.from_defaults(async_fn=work, name=f"tool{number}", description="Works.")

    return [tool(number) for number in range(len(order))]


def calls_text(count: int) -> str:
    return "\n".join(call_text(f"tool{n}", '{"text": "x"}') for n in range(count))


@pytest.mark.parametrize(("order", "early"), RUNS)
async def test_scaffold_and_results_are_forwarded_exactly_once_in_completion_order(
    llm: CacheFriendlyLLM, tiny_watch: Watch, order: tuple[int, ...], early: bool
) -> None:
    tools = tools_ending_in(order)
    names = [tool.metadata.get_name() for tool in tools] if early else []
    agent = FunctionAgent(tools=list(tools), llm=llm, early_tools=names)
    with scripted_replies(ids_of(calls_text(len(order))), ids_of("Done.")):
        context = Context(agent)
        result = await agent.run("Go.", ctx=context)
    told = [message.content for message in await memory_of(context) if message.role == "tool"]
    # Early, both may be done before the turn is over: then they are there at once.
    assert (sorted(told) if early else told) == [
        f"result {n} of x" for n in (sorted(order) if early else order)
    ]
    assert [call.tool_output.content for call in result.tool_calls] == told
    first, second = tiny_watch.reports
    new = second.prompt_tokens - first.prompt_tokens - (first.generated_tokens - 1)
    assert second.prefilled_tokens + second.background_prefilled_tokens == new
    fed_back = first.generated_tokens + second.generated_tokens - 2
    assert tiny_watch.seen.tokens == first.prefilled_tokens + new + fed_back
    assert early or second.background_prefilled_tokens >= len(HEADER)
    assert second.losses == ()


async def memory_of(context: Any) -> Any:
    return await (await context.store.get("memory")).aget()


async def test_the_turn_is_closed_and_the_tool_header_written_while_the_tool_runs(
    llm: CacheFriendlyLLM, tiny_watch: Watch
) -> None:
    seen: list[tuple[int, ...]] = []

    async def tool0(text: str) -> str:
        """Works."""
        await until(lambda: tiny_watch.seen.ids[-1][-len(HEADER) :] == HEADER)
        seen.append(tiny_watch.seen.ids[-1])
        return text

    agent = FunctionAgent(tools=[tool0], llm=llm)
    with scripted_replies(ids_of(calls_text(1)), ids_of("Done.")):
        await agent.run("Go.")
    assert len(seen) == 1


async def test_nothing_is_prefilled_where_a_result_is_the_answer(
    llm: CacheFriendlyLLM, tiny_watch: Watch
) -> None:
    tool = FunctionTool.from_defaults(add, return_direct=True)
    agent = FunctionAgent(tools=[tool], llm=llm)
    with scripted_replies(ADD):
        assert str(await agent.run("2 + 3?")) == "5"
    (report,) = tiny_watch.reports
    assert tiny_watch.seen.tokens == report.forwarded_tokens

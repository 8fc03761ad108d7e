"""One call or several: what `allow_parallel_tool_calls` and `tool_required` promise."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.tools import FunctionTool

from cachefriendly.testing import scripted_replies
from cachefriendly_li import CacheFriendlyLLM
from tests.li.agents import add
from tests.li.watch import Watch, call_text, ids_of


def double(a: int) -> int:
    """Double a number."""
    return 2 * a


TOOLS = [FunctionTool.from_defaults(add), FunctionTool.from_defaults(double)]
FIRST, SECOND = call_text("add", '{"b": 1, "a": 2}'), call_text("double", '{"a": 4}')
PARALLEL: dict[str, Any] = {"allow_parallel_tool_calls": True, "max_tokens": 200}
FORMS = ["chat", "achat", "stream", "astream"]


async def ask(llm: CacheFriendlyLLM, form: str, history: list[ChatMessage], **options: Any) -> Any:
    """The last response of a call with tools."""
    if form == "chat":
        return llm.chat_with_tools(TOOLS, chat_history=history, **options)
    if form == "achat":
        return await llm.achat_with_tools(TOOLS, chat_history=history, **options)
    if form == "stream":
        return list(llm.stream_chat_with_tools(TOOLS, chat_history=history, **options))[-1]
    stream = await llm.astream_chat_with_tools(TOOLS, chat_history=history, **options)
    return [chunk async for chunk in stream][-1]


@pytest.mark.parametrize("form", FORMS)
async def test_a_reply_ends_behind_its_only_call(
    tiny_llm: CacheFriendlyLLM, tiny_watch: Watch, form: str
) -> None:
    history = [ChatMessage("What is 2 + 1?")]
    with scripted_replies(ids_of(f"{FIRST}\n{SECOND}"), ids_of("3")):
        response = await ask(tiny_llm, form, history)
        (call,) = tiny_llm.get_tool_calls_from_response(response)
        assert (call.tool_name, list(call.tool_kwargs)) == ("add", ["b", "a"])
        assert response.raw["finish_reason"] == "tool_calls"
        history.append(response.message)
        result = {"tool_call_id": call.tool_id, "name": "add"}
        history.append(ChatMessage("3", role="tool", additional_kwargs=result))
        await ask(tiny_llm, form, history)
    first, second = tiny_watch.reports
    # What was written of the second call is cut off: the prompt goes on behind the first one.
    assert first.generated_tokens < len(ids_of(FIRST)) + len(ids_of(SECOND))
    assert second.reused_tokens >= first.prompt_tokens + len(ids_of(FIRST)) - 1
    assert second.losses == ()


@pytest.mark.parametrize("form", FORMS)
async def test_parallel_calls_are_all_kept(tiny_llm: CacheFriendlyLLM, form: str) -> None:
    with scripted_replies(ids_of(f"{FIRST}\n{SECOND}")):
        response = await ask(tiny_llm, form, [ChatMessage("Calculate.")], **PARALLEL)
    calls = tiny_llm.get_tool_calls_from_response(response)
    assert [(call.tool_name, call.tool_kwargs) for call in calls] == [
        ("add", {"b": 1, "a": 2}),
        ("double", {"a": 4}),
    ]


@pytest.mark.parametrize("parallel", [False, True])
async def test_required_calls_may_be_several_only_if_parallel_ones_are_allowed(
    tiny_llm: CacheFriendlyLLM, parallel: bool
) -> None:
    """The grammar closes behind the first call, or lets the model go on to a second one."""
    with scripted_replies(ids_of(f"{SECOND}\n{SECOND}")):
        response = await ask(
            tiny_llm,
            "chat",
            [ChatMessage("Double.")],
            tool_required=True,
            allow_parallel_tool_calls=parallel,
            max_tokens=200,
        )
    calls = tiny_llm.get_tool_calls_from_response(response)
    assert [call.tool_kwargs for call in calls] == [{"a": 4}] * (1 + parallel)


async def test_predictions_are_called(tiny_llm: CacheFriendlyLLM) -> None:
    both = f"{FIRST}\n{SECOND}"
    with scripted_replies(*[ids_of(both)] * 4):
        one = tiny_llm.predict_and_call(TOOLS, "Calculate.")
        two = tiny_llm.predict_and_call(TOOLS, "Calculate.", **PARALLEL)
        aone = await tiny_llm.apredict_and_call(TOOLS, "Calculate.")
        atwo = await tiny_llm.apredict_and_call(TOOLS, "Calculate.", **PARALLEL)
    assert (one.response, aone.response) == ("3", "3")
    assert (two.response, atwo.response) == ("3\n\n8", "3\n\n8")

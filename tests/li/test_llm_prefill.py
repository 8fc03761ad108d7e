"""`prefill`: work done ahead of a call, and exactly what the call then needs no more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.tools import FunctionTool

from cachefriendly import EngineConfig
from cachefriendly.errors import RequestError
from cachefriendly.testing import ScriptedEngine, scripted_replies
from cachefriendly_li import CacheFriendlyLLM
from tests.li.agents import add
from tests.li.watch import TOKENIZER, Watch, call_text, ids_of

TOOLS = [FunctionTool.from_defaults(add)]
HEADER = len(TOKENIZER("\n<|im_start|>tool\n<tool_response>\n").input_ids)


async def ahead(llm: CacheFriendlyLLM, form: str, messages: Any, **options: Any) -> Any:
    if form == "prefill":
        return llm.prefill(messages, **options)
    return await llm.aprefill(messages, **options)


@pytest.mark.parametrize("form", ["prefill", "aprefill"])
async def test_what_follows_a_call_is_forwarded_while_its_tool_runs(
    tiny_llm: CacheFriendlyLLM, tiny_watch: Watch, form: str
) -> None:
    history = [ChatMessage("What is 2 + 3?")]
    asked = ids_of(call_text("add", '{"a": 2, "b": 3}'))
    with scripted_replies(asked, ids_of("5")):
        reply = tiny_llm.chat_with_tools(TOOLS, chat_history=history)
        (call,) = tiny_llm.get_tool_calls_from_response(reply)
        history.append(reply.message)
        report = await ahead(tiny_llm, form, history, tools=TOOLS, awaiting=[call.tool_id])
        result = {"tool_call_id": call.tool_id, "name": "add"}
        history.append(ChatMessage("5", role="tool", additional_kwargs=result))
        tiny_llm.chat_with_tools(TOOLS, chat_history=history)
    first, second = tiny_watch.reports
    # The stop token was never forwarded: it is the first of the tokens ahead.
    assert report.prefilled_tokens == 1 + HEADER
    held = first.prompt_tokens + len(asked) - 1
    assert second.reused_tokens == held + report.prefilled_tokens
    # No token of the whole conversation was forwarded twice.
    assert tiny_watch.seen.tokens == second.prompt_tokens + second.generated_tokens - 1


async def test_options_are_those_of_a_call() -> None:
    engine = ScriptedEngine("Hello.")
    llm = CacheFriendlyLLM(engine=engine, session_id="s")
    await llm.aprefill([ChatMessage("hi")], tools=TOOLS, cache_namespace="n")
    (request,) = engine.prefills
    assert (request.session, request.namespace) == ("s", "n")
    assert [tool.name for tool in request.tools] == ["add"]
    with pytest.raises(RequestError, match="message list is empty"):
        llm.prefill([])


async def test_an_engine_that_keeps_nothing_is_not_asked() -> None:
    engine = ScriptedEngine("Hello.")
    engine.config = EngineConfig(reuse=False)
    llm = CacheFriendlyLLM(engine=engine)
    assert llm.prefill([ChatMessage("hi")]) is None
    assert await llm.aprefill([ChatMessage("hi")]) is None
    assert not engine.prefills


async def test_a_cancelled_prefill_leaves_the_call_exact(
    tiny_llm: CacheFriendlyLLM, tiny_watch: Watch
) -> None:
    messages = [ChatMessage("Hello " * 60)]
    expected = tiny_llm.chat(messages, max_tokens=5, cache_namespace="cold").message.content
    task = asyncio.create_task(tiny_llm.aprefill(messages))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tiny_llm.chat(messages, max_tokens=5).message.content == expected

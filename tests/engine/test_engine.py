"""The public engine: prefill, reports, counters, shared engines, forced replies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cachefriendly import (
    ChatRequest,
    ConfigError,
    Engine,
    Finished,
    Message,
    MissReason,
    Sampling,
    TextDelta,
    Tool,
)
from cachefriendly.testing import (
    byte_tokenizer,
    embedding_counter,
    scripted_replies,
    templates,
    tiny_model,
)

ADD = Tool(
    "add",
    "Add two integers",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)
GREEDY = Sampling(max_tokens=8, temperature=0)


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(tiny_model("llama"), byte_tokenizer(templates.NATIVE_TOOLS)) as made:
        yield made


def test_a_tool_result_is_injected_into_the_live_sequence(engine: Engine) -> None:
    """Scaffold and result are prefilled while a tool runs; the call behind forwards the rest."""
    call_text = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    reply = [*engine.token_ids(call_text), engine.tokenizer.eos_token_id]
    talk = [Message("user", "1+2?")]
    with scripted_replies(reply):
        first = engine.chat(ChatRequest(tuple(talk), tools=(ADD,), session="s")).result()
    held = len(first.prompt_ids) + len(first.output_ids)
    talk += [first.message, Message("tool", "3", tool_call_id=first.message.tool_calls[0].id)]
    request = ChatRequest(tuple(talk), tools=(ADD,), sampling=GREEDY, session="s")
    with embedding_counter(engine.model) as count:
        ahead = engine.prefill(request).result()
    assert ahead.message.content == ""
    scaffold = len(ahead.prompt_ids) - held
    assert count.tokens == ahead.report.prefilled_tokens == scaffold
    second = engine.chat(request).result()
    prompt = len(second.prompt_ids) - len(ahead.prompt_ids)
    assert second.report.prefilled_tokens == prompt
    assert second.report.background_prefilled_tokens == scaffold
    assert [r.prompt_tokens for r in engine.reports()] == [
        len(first.prompt_ids),
        len(second.prompt_ids),
    ]
    assert engine.stats().background_prefilled_tokens == scaffold


def test_without_prefill_the_call_forwards_scaffold_and_result_exactly(engine: Engine) -> None:
    call_text = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    reply = [*engine.token_ids(call_text), engine.tokenizer.eos_token_id]
    talk = [Message("user", "1+2?")]
    with scripted_replies(reply):
        first = engine.chat(ChatRequest(tuple(talk), tools=(ADD,))).result()
    talk += [first.message, Message("tool", "3", tool_call_id=first.message.tool_calls[0].id)]
    second = engine.chat(ChatRequest(tuple(talk), tools=(ADD,), sampling=GREEDY)).result()
    held = len(first.prompt_ids) + len(first.output_ids)
    new_text = engine.tokenizer.decode(second.prompt_ids[held:])
    assert new_text == (
        "<|im_end|>\n<|im_start|>tool\n<tool_response>\n3\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert second.report.prefilled_tokens == len(second.prompt_ids) - held


def test_forced_call_and_schema_are_valid_by_construction(demo_engine: Engine) -> None:
    question = (Message("user", "What is 17 plus 25?"),)
    forced = demo_engine.chat(
        ChatRequest(
            question, tools=(ADD,), tool_choice="required", sampling=Sampling(max_tokens=60)
        )
    ).result()
    assert forced.finish_reason == "tool_calls"
    call = forced.message.tool_calls[0]
    assert call.name == "add"
    assert set(call.arguments) == {"a", "b"}
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "integer"}, "why": {"type": "string"}},
        "required": ["answer", "why"],
    }
    for budget in (20, 40):
        sampling = Sampling(max_tokens=budget, temperature=1.0, seed=3)
        result = demo_engine.chat(
            ChatRequest(question, response_schema=schema, sampling=sampling)
        ).result()
        parsed = json.loads(result.message.content)
        assert set(parsed) == {"answer", "why"}
        assert result.report.generated_tokens <= budget


def test_a_response_schema_with_tools_allows_both(engine: Engine) -> None:
    """An agent with a response format: a call now, the answer later."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    for text, calls in ((call, 1), ('{"n": 3}', 0)):
        reply = [*engine.token_ids(text), engine.tokenizer.eos_token_id]
        request = ChatRequest(
            (Message("user", text),),
            tools=(ADD,),
            response_schema=schema,
            sampling=Sampling(max_tokens=200),
        )
        with scripted_replies(reply):
            result = engine.chat(request).result()
        assert len(result.message.tool_calls) == calls
        assert result.message.content == ("" if calls else text)


def test_text_deltas_add_up_and_finished_comes_last(demo_engine: Engine) -> None:
    call = demo_engine.chat(ChatRequest((Message("user", "Say hello."),), sampling=GREEDY))
    events = list(call)
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert isinstance(events[-1], Finished)
    assert text == events[-1].result.message.content
    assert call.result() is events[-1].result


async def test_async_iteration_gives_the_same_events(demo_engine: Engine) -> None:
    request = ChatRequest((Message("user", "Say hello."),), sampling=GREEDY)
    expected = demo_engine.chat(request).result()
    events = [event async for event in demo_engine.chat(request)]
    assert isinstance(events[-1], Finished)
    assert events[-1].result.output_ids == expected.output_ids


def test_reports_and_counters(engine: Engine) -> None:
    first = engine.chat(ChatRequest((Message("user", "one"),), sampling=GREEDY)).result()
    assert first.report.losses[0].reason is MissReason.FIRST_CALL
    talk = (Message("user", "one"), first.message, Message("user", "two"))
    second = engine.chat(ChatRequest(talk, sampling=GREEDY)).result()
    assert second.report.losses == ()
    assert engine.last_report == second.report
    assert engine.reports() == [first.report, second.report]
    stats = engine.stats()
    assert stats.calls == 2
    assert stats.prompt_tokens == first.report.prompt_tokens + second.report.prompt_tokens
    assert stats.hit_ratio == second.report.reused_tokens / stats.prompt_tokens
    assert json.dumps(stats.to_dict())


def test_a_report_says_whose_call_it_was(engine: Engine) -> None:
    request = ChatRequest(
        (Message("user", "one"),), sampling=GREEDY, namespace="tenant", session="thread 1"
    )
    message = engine.chat(request).result().message
    report = engine.last_report
    assert report is not None
    assert (report.namespace, report.session) == ("tenant", "thread 1")
    assert report.handle == message.handle


def test_evicted_tokens_are_named(engine: Engine) -> None:
    first = engine.chat(ChatRequest((Message("user", "one"),), sampling=GREEDY)).result()
    engine.clear()
    talk = (Message("user", "one"), first.message, Message("user", "two"))
    second = engine.chat(ChatRequest(talk, sampling=GREEDY)).result()
    (loss,) = second.report.losses
    assert loss.reason is MissReason.EVICTED
    assert loss.tokens_lost == len(first.prompt_ids) + len(first.output_ids) - 1


def test_a_loaded_model_shares_one_engine() -> None:
    model, tokenizer = tiny_model("llama"), byte_tokenizer()
    engine = Engine.of(model, tokenizer)
    assert Engine.of(model, tokenizer) is engine
    request = ChatRequest((Message("user", "hi"),), sampling=GREEDY)
    engine.chat(request).result()
    other = Engine.of(model, byte_tokenizer(templates.NATIVE_TOOLS))
    with pytest.raises(ConfigError, match="another open Engine runs this model"):
        other.chat(request)
    engine.close()
    again = Engine.of(model, tokenizer)
    assert again is not engine
    again.close()


def test_nothing_is_loaded_before_it_is_needed(tmp_path: Any) -> None:
    model, tokenizer = tiny_model("llama"), byte_tokenizer()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    engine = Engine.from_pretrained(str(tmp_path))
    assert Engine.from_pretrained(str(tmp_path)) is engine
    assert engine.context_window == model.config.max_position_embeddings
    assert "not loaded" in repr(engine)
    result = engine.chat(ChatRequest((Message("user", "hi"),), sampling=GREEDY)).result()
    assert result.report.generated_tokens > 0
    assert "loaded" in repr(engine)
    engine.close()


def test_how_the_call_behind_a_reply_began(engine: Engine) -> None:
    talk = (Message("system", "Be brief."), Message("user", "Hi"), Message("system", "Late."))
    request = ChatRequest(talk, tools=(ADD,), sampling=GREEDY, namespace="n")
    handle = engine.chat(request).result().message.handle or ""
    head = engine.head_of(handle)
    assert head is not None
    assert (head.messages, head.tools, head.namespace) == (talk[:1], (ADD,), "n")
    assert engine.head_of("cf1:unknown") is None
    engine.forget(namespace="n")
    assert engine.head_of(handle) is None

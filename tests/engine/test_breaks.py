"""Faults that a fresh pair of eyes found by trying to break the engine; each stays mended."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from cachefriendly import (
    ChatRequest,
    Engine,
    EngineClosed,
    EngineConfig,
    Message,
    RequestError,
    RowFailed,
    Sampling,
    Tool,
    ToolCall,
)
from cachefriendly.testing import (
    byte_tokenizer,
    cold_generate,
    scripted_replies,
    tiny_model,
)

GREEDY = Sampling(max_tokens=10, temperature=0)
CONTENT_ONLY = "{% for message in messages %}{{ message.content }}{% endfor %}"


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(tiny_model("llama"), byte_tokenizer()) as made:
        yield made


def ask(text: str, sampling: Sampling = GREEDY, namespace: str = "") -> ChatRequest:
    return ChatRequest((Message("user", text),), sampling=sampling, namespace=namespace)


def test_an_empty_prompt_is_refused_and_blocks_nobody() -> None:
    with Engine(tiny_model("llama"), byte_tokenizer(CONTENT_ONLY)) as engine:
        for start in (engine.chat, engine.prefill):
            with pytest.raises(RequestError, match="the prompt has no tokens"):
                start(ask(""))
        assert engine.chat(ask("fine")).result(timeout=60).report.generated_tokens > 0


def test_a_stop_string_of_whole_characters_leaves_no_half_ones(engine: Engine) -> None:
    text = "a\u4f60\u597db"
    reply = [*engine.token_ids(text), engine.tokenizer.eos_token_id]
    for stop, kept in (("\u4f60\u597d", "a"), ("\u597d", "a\u4f60")):
        with scripted_replies(reply):
            request = ask("go " + stop, Sampling(max_tokens=40, stop=(stop,)))
            events = list(engine.chat(request))
        shown = "".join(getattr(event, "text", "") for event in events)
        result = events[-1].result  # type: ignore[union-attr]
        assert shown == result.message.content == kept
        assert engine.tokenizer.decode(result.output_ids) == kept


@pytest.mark.parametrize("how", ["mul", "add", "numpy"])
def test_writes_behind_autograds_back_are_noticed(how: str) -> None:
    """peft merges through ``.data``, which raises no version counter."""
    model, cold = tiny_model("llama"), tiny_model("llama")
    with Engine(model, byte_tokenizer()) as engine:
        first = engine.chat(ask("hello")).result()
        for owner in (model, cold):
            weight = owner.get_submodule("model.layers.1.mlp.down_proj").weight
            if how == "mul":
                weight.data.mul_(-1)
            elif how == "add":
                weight.data += torch.ones_like(weight)
            else:
                np.multiply(weight.detach().numpy(), 2.0, out=weight.detach().numpy())
        talk = (Message("user", "hello"), first.message, Message("user", "again"))
        second = engine.chat(ChatRequest(talk, sampling=GREEDY)).result()
        assert second.report.reused_tokens == 0
        expected = cold_generate(cold, second.prompt_ids, max_new_tokens=10)
        assert list(second.output_ids) == expected[: len(second.output_ids)]


def test_the_budget_holds_when_the_last_call_was_left_early() -> None:
    with Engine(tiny_model("llama"), byte_tokenizer(), EngineConfig(kv_bytes=1)) as engine:
        stream = iter(engine.chat(ask("x", Sampling(max_tokens=1500, temperature=0))))
        next(stream)
        stream.close()
        engine.chat(ask("y", Sampling(max_tokens=1))).result()
        assert engine.stats().cache.bytes == 0


def test_keys_of_older_weights_are_dropped_with_their_call(engine: Engine) -> None:
    call = engine.chat(ask("long", Sampling(max_tokens=300, temperature=0), namespace="n"))
    stream = iter(call)
    next(stream)
    with torch.no_grad():
        engine.model.get_input_embeddings().weight.mul_(1.1)
    for _ in stream:
        pass
    engine.forget(namespace="n")
    assert engine.stats().cache.bytes == 0


def test_forgotten_namespaces_leave_nothing_behind(engine: Engine) -> None:
    for number in range(30):
        engine.chat(ask("hi", Sampling(max_tokens=1), namespace=f"n{number}")).result()
        engine.forget(namespace=f"n{number}")
    assert engine.token_engine.ask(lambda core: core.cache.spaces()) == set()


def test_a_call_from_before_a_fork_fails_in_the_child(engine: Engine) -> None:
    call = engine.chat(ask("parent", Sampling(max_tokens=200, temperature=0)))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            call.result(timeout=20)
            message = "no error"
        except EngineClosed as error:
            message = str(error)
        except BaseException as error:
            message = repr(error)
        os.write(write, message.encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert "before the process forked" in os.read(read, 4096).decode()
    call.result()


def test_a_hook_that_exits_ends_its_call_only(engine: Engine) -> None:
    def leave(module: Any, args: Any) -> None:
        raise SystemExit("bye")

    hook = engine.model.get_submodule("model.layers.0").register_forward_pre_hook(leave)
    with pytest.raises(RowFailed, match="SystemExit: bye"):
        engine.chat(ask("x")).result()
    hook.remove()
    assert engine.chat(ask("x")).result().report.generated_tokens > 0


def test_a_copy_of_a_taken_model_gets_an_engine_of_its_own(engine: Engine) -> None:
    first = engine.chat(ask("x")).result()
    with Engine(copy.deepcopy(engine.model), byte_tokenizer()) as other:
        assert other.chat(ask("x")).result().output_ids == first.output_ids


def test_calls_nested_too_deeply_are_invalid_and_hurt_nobody(engine: Engine) -> None:
    deep = '{"name": "t", "arguments": {"a": ' + "[" * 950 + "]" * 950 + "}}"
    text = f"<tool_call>\n{deep}\n</tool_call>"
    tool = Tool("t", "", {"type": "object", "properties": {}})
    reply = [*engine.token_ids(text), engine.tokenizer.eos_token_id]
    request = ChatRequest(
        (Message("user", "x"),), tools=(tool,), sampling=Sampling(max_tokens=3000)
    )
    with (
        Engine(tiny_model("llama", max_position_embeddings=8192), byte_tokenizer()) as roomy,
        scripted_replies(reply),
    ):
        result = roomy.chat(request).result()
        assert result.message.tool_calls == ()
        assert "nested too deeply" in result.invalid_tool_calls[0].error
        talk = (*request.messages, result.message, Message("user", "go on"))
        roomy.chat(ChatRequest(talk, tools=(tool,), sampling=GREEDY)).result()


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([{"role": "user", "content": "x"}], "message 0 is a dict; build cachefriendly.Message"),
        ([Message("user", "x", name=5)], r"message 0: name=5 must be a string"),  # type: ignore[arg-type]
        (
            [Message("assistant", "", tool_calls=(ToolCall("t", {"a": object()}),))],
            "arguments of call 't' are no JSON",
        ),
        (
            [Message("assistant", "", tool_calls=(ToolCall("t", "{}"),))],  # type: ignore[arg-type]
            "arguments of call 't' are str; send a mapping",
        ),
    ],
)
def test_values_of_the_wrong_kind(engine: Engine, messages: Any, error: str) -> None:
    with pytest.raises(RequestError, match=error):
        engine.chat(ChatRequest(tuple(messages)))


@pytest.mark.parametrize(
    "options", [{"seed": 2**70}, {"stop": None}, {"stop_token_ids": 5}, {"stop": ["x"]}]
)
def test_settings_of_the_wrong_kind(options: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=next(iter(options))):
        Sampling(**options)

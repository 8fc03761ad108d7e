"""What the tests of CASES.md share: two tools, and scripted calls whose tokens are counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cachefriendly import ChatRequest, Engine, Message, Sampling, Tool
from cachefriendly.testing import cold_generate, embedding_counter, scripted_replies

WEATHER = Tool(
    "get_weather",
    "Weather of a city",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "metric": {"type": "boolean"}},
        "required": ["city"],
    },
)
ADD = Tool(
    "add",
    "Add two numbers",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)
MakeEngine = Callable[..., Engine]


def reply_ids(engine: Engine, text: str) -> list[int]:
    """Ids of a reply as a model would choose them, its stop id included."""
    return [*engine.token_ids(text), engine.tokenizer.eos_token_id]


def settle(engine: Engine) -> None:
    """Wait for rows that were left early: they are counted until their next token ends them."""
    while (core := engine.stats().core).running + core.waiting:
        time.sleep(0.01)


def ask(engine: Engine, messages: list[Message], reply: str | list[int], **request: Any) -> Any:
    """One scripted call; checks that the report tells what entered the embedding."""
    settle(engine)
    ids = reply_ids(engine, reply) if isinstance(reply, str) else reply
    sampling = request.pop("sampling", Sampling(max_tokens=200, temperature=0))
    with scripted_replies(ids), embedding_counter(engine.model) as count:
        result = engine.chat(ChatRequest(tuple(messages), sampling=sampling, **request)).result()
    assert count.tokens == result.report.forwarded_tokens
    assert result.report.prompt_tokens == len(result.prompt_ids)
    return result


def as_generated(model: Any, result: Any, max_tokens: int = 8) -> None:
    """Equal to transformers' own greedy ids, whose stop token we do not count as output."""
    expected = cold_generate(model, result.prompt_ids, max_new_tokens=max_tokens)
    stopped = result.finish_reason == "stop"
    assert list(result.output_ids) == expected[: len(expected) - stopped]
    assert expected

"""Kinds of fault that users of such systems met in public, in agents, with the values expected.

Cases 12 and 14 have files of their own: `test_summarization`, and `test_state_bytes` with
`test_time_travel`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, dynamic_prompt
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from cachefriendly import ChatResult, Engine, EngineConfig, MissReason
from cachefriendly.prefix import common_prefix
from cachefriendly.testing import byte_tokenizer, scripted_replies, templates, tiny_model
from cachefriendly.testing.tokenizer import END_ID
from cachefriendly_lc import AnchoredPrompt, CacheFriendlyMiddleware, ChatCacheFriendly
from tests.lc.early import CONFIG
from tests.lc.tool_box import add, get_weather

TOKENIZER = byte_tokenizer(templates.NATIVE_TOOLS)
STAMPS = ("2026-11-30 08:00:00.123", "2026-11-30 08:00:07.456", "2026-11-30 08:01:00.789")


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(tiny_model("llama"), TOKENIZER) as tiny:
        yield tiny


class Talk:
    """An agent's thread with scripted replies, and the results of all its model calls."""

    def __init__(self, engine: Engine, *middleware: Any, layout: Any = "stock") -> None:
        self._engine, self.calls = engine, list[ChatResult]()
        model = ChatCacheFriendly(engine=engine, max_tokens=100)
        self.agent: Any = create_agent(
            model,
            [add, get_weather],
            middleware=[*middleware, CacheFriendlyMiddleware(model, layout=layout)],
            checkpointer=InMemorySaver(),
        )

    def turns(self, count: int) -> None:
        started: list[Any] = []
        chat = self._engine.chat
        self._engine.chat = lambda *a, **k: started.append(chat(*a, **k)) or started[-1]  # type: ignore[method-assign,func-returns-value]
        try:
            for _ in range(count):
                number = len(self.calls) + len(started)
                reply = [*TOKENIZER(f"Answer {number}.").input_ids, END_ID]
                with scripted_replies(reply):
                    told = {"messages": [HumanMessage(f"Question {number}?")]}
                    self.agent.invoke(told, CONFIG)
        finally:
            self._engine.chat = chat  # type: ignore[method-assign]
        self.calls += [call.result() for call in started]

    def new_text(self, number: int) -> str:
        """What a call forwarded: nothing that an earlier call held, all that came behind it."""
        before, call = self.calls[number - 1], self.calls[number]
        held = (*before.prompt_ids, *before.output_ids)  # without the stop token, sampled last
        assert call.prompt_ids[: len(held)] == held
        assert call.report.reused_tokens == len(held)
        assert call.report.losses == ()
        return str(TOKENIZER.decode(list(call.prompt_ids[len(held) :])))


def turn(number: int, block: str = "") -> str:
    return (
        f"<|im_end|>\n<|im_start|>user\n{block}Question {number}?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


class FifthTurn(AgentMiddleware[Any, Any, Any]):
    """Offers one tool more from the fifth turn on."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        offered = request.tools if len(request.messages) > 8 else request.tools[:1]
        return handler(request.override(tools=offered))


def test_case_9_one_tool_more_at_turn_five_is_named(engine: Engine) -> None:
    talk = Talk(engine, FifthTurn())
    talk.turns(5)
    before, after = talk.calls[-2:]
    (loss,) = after.report.losses
    same = common_prefix(before.prompt_ids, after.prompt_ids)
    assert (loss.reason, loss.field) == (MissReason.TOOLS_CHANGED, "tools")
    assert loss.first_differing_token == same == after.report.reused_tokens
    assert loss.tokens_lost == len(before.prompt_ids) + len(before.output_ids) - same


def test_case_9_in_anchor_mode_the_new_tool_alone_is_forwarded(engine: Engine) -> None:
    talk = Talk(engine, FifthTurn(), layout="stable")
    talk.turns(6)
    assert talk.new_text(3) == turn(3)
    block, _, rest = talk.new_text(4).partition("}\n\n")
    assert block.startswith("<|im_end|>\n<|im_start|>user\n[further tool get_weather]: {")
    assert '"name": "add"' not in block
    assert turn(4).endswith(rest)
    assert talk.new_text(5) == turn(5)


def test_case_10_a_timestamp_is_named_with_its_text_and_field(engine: Engine) -> None:
    times = iter(STAMPS)
    talk = Talk(engine, dynamic_prompt(lambda request: f"It is {next(times)}. Be kind."))
    talk.turns(2)
    (loss,) = talk.calls[1].report.losses
    assert (loss.reason, loss.field) == (MissReason.VOLATILE_FIELD, "system")
    assert (loss.message_index, loss.tokens_lost > 0) == (0, True)
    assert STAMPS[0] in loss.before
    assert STAMPS[1] in loss.after


def test_case_10_with_an_anchor_the_prefix_is_kept(engine: Engine) -> None:
    times = iter(STAMPS)
    prompt = AnchoredPrompt.from_template("It is [NOW_23]. Be kind.")
    talk = Talk(engine, dynamic_prompt(lambda request: prompt.message(now=next(times))))
    talk.turns(3)
    for number in (1, 2):
        assert talk.new_text(number) == turn(number, f"[NOW_23]: {STAMPS[number]}\n\n")
    assert len({call.report.prefix_tokens for call in talk.calls}) == 1


MEMORY = ("Likes tea.", "Likes tea.\nLives in Rome.", "Lives in Oslo.")


@pytest.mark.parametrize("kind", ["anchor", "stable"])
def test_case_11_an_edited_memory_block_costs_itself_alone(engine: Engine, kind: str) -> None:
    """By an anchor, or written into the system prompt by a middleware that knows nothing of it."""
    texts = iter(MEMORY)
    prompt = AnchoredPrompt.from_template("Be kind.\n<memory>\n[MEMORY_60]\n</memory>")

    def written(request: Any) -> Any:
        text = next(texts)
        if kind == "anchor":
            return prompt.message(memory=text)
        return prompt.text.replace("[MEMORY_60]", text)

    talk = Talk(engine, dynamic_prompt(written), layout="stable" if kind == "stable" else "stock")
    talk.turns(3)
    for number in (1, 2):
        text = talk.new_text(number)
        head, _, tail = turn(number).partition("Question")
        assert text.startswith(head + "[")
        assert text.endswith("Question" + tail)
        assert MEMORY[number].split("\n")[-1] in text  # lines that stay need not be said again
        assert len(text) < len(turn(number)) + len(MEMORY[number]) + 60


@pytest.mark.parametrize("policy", ["drop_oldest", "sink_window"])
def test_case_13_a_full_window_is_never_forwarded_whole_twice_in_a_row(policy: Any) -> None:
    window = 500
    config = EngineConfig(overflow=policy, context_window=window)
    with Engine(tiny_model("llama"), TOKENIZER, config) as engine:
        model = ChatCacheFriendly(engine=engine, max_tokens=20, temperature=0)
        agent: Any = create_agent(model, [], system_prompt="Be kind.", checkpointer=InMemorySaver())
        for number in range(24):
            agent.invoke({"messages": [HumanMessage(f"Question {number}?")]}, CONFIG)
        reports = engine.reports()
    assert any(report.dropped_messages for report in reports)
    cut = [report.reused_tokens < report.prompt_tokens / 2 for report in reports[1:]]
    assert 1 <= sum(cut) <= 6
    assert not any(first and second for first, second in pairwise(cut))

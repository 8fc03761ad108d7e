"""The prefix guard says what cost an agent tokens it held; its stable layout prevents it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    SummarizationMiddleware,
    dynamic_prompt,
)
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from cachefriendly import Engine
from cachefriendly.errors import ConfigError
from cachefriendly.events import MissReason
from cachefriendly.testing import (
    ScriptedEngine,
    byte_tokenizer,
    scripted_replies,
    templates,
    tiny_model,
)
from cachefriendly.testing.tokenizer import END_ID
from cachefriendly_lc import CacheFriendlyMiddleware, ChatCacheFriendly
from cachefriendly_lc.guard_layout import StableSystem
from tests.lc.early import CONFIG
from tests.lc.tool_box import add, get_weather

TOKENIZER = byte_tokenizer(templates.NATIVE_TOOLS)
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
SYSTEM = "You are kind.\nIt is {} now.\nNever lie."


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(tiny_model("llama"), TOKENIZER) as tiny:
        yield tiny


class Talk:
    """An agent of one thread whose replies are scripted."""

    def __init__(
        self, engine: Engine, *others: Any, layout: Any = "stock", tools: Any = (add,)
    ) -> None:
        self.model = ChatCacheFriendly(engine=engine, max_tokens=100)
        self.mine = CacheFriendlyMiddleware(self.model, layout=layout)
        self.agent: Any = create_agent(
            self.model,
            list(tools),
            middleware=[*others, self.mine],
            checkpointer=InMemorySaver(),
        )

    def turn(self, text: str, *replies: str) -> list[AIMessage]:
        scripts = [[*TOKENIZER(reply).input_ids, END_ID] for reply in replies]
        with scripted_replies(*scripts):
            done = self.agent.invoke({"messages": [HumanMessage(text)]}, CONFIG)
        return [message for message in done["messages"] if isinstance(message, AIMessage)]


def clock(*times: str) -> Any:
    """A middleware that writes the next time into the system prompt at every model call."""
    moments = iter(times)
    return dynamic_prompt(lambda request: SYSTEM.format(next(moments)))


def test_a_time_in_the_system_prompt_is_named_and_never_quoted(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    talk = Talk(engine, clock("10:00:00.123", "10:07:00.456"))
    with caplog.at_level("INFO", logger="cachefriendly_lc.guard"):
        talk.turn("Hello", "Hi.")
        talk.turn("And now?", "Still here.")
    (finding,) = talk.mine.findings()
    assert finding.reason is MissReason.VOLATILE_FIELD
    assert (finding.field, finding.kind, finding.message_index) == ("system", "time", 0)
    assert finding.tokens_lost > 0
    assert 'CacheFriendlyMiddleware(model, layout="stable")' in finding.fix
    (line,) = caplog.messages
    assert "volatile field in system (time)" in line
    assert "10:0" not in line


def test_the_stable_layout_keeps_the_first_system_message_and_binds_the_change(
    engine: Engine,
) -> None:
    times = ("10:00:00", "10:07:00", "10:07:00", "10:09:00")
    talk = Talk(engine, clock(*times), layout="stable")
    talk.turn("Hello", "Hi.")
    talk.turn("Add.", CALL, "It is 3.")
    replies = talk.turn("And now?", "Bye.")
    assert talk.mine.findings() == ()
    for before, after in pairwise(engine.reports()):
        held = before.prompt_tokens + before.generated_tokens - 1
        assert after.reused_tokens - after.background_prefilled_tokens == held
    prompt = engine.tokenizer.decode(_prompt(engine, talk))
    assert SYSTEM.format("10:00:00") in prompt
    assert "user\n[It is]: 10:07:00 now.\n\nAdd." in prompt
    assert "user\n[It is]: 10:09:00 now.\n\nAnd now?" in prompt
    assert len(replies) == 4


def _prompt(engine: Engine, talk: Talk) -> Any:
    """Ids of the newest call: those that its record holds."""
    handle = talk.agent.get_state(CONFIG).values["messages"][-1].response_metadata["cachefriendly"]
    return engine._live().prompts.transcript.get("", handle).ids()  # type: ignore[attr-defined]


def test_a_middleware_behind_this_one_is_noticed(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    model = ChatCacheFriendly(engine=engine, max_tokens=4)
    mine = CacheFriendlyMiddleware(model, layout="stable")
    agent = create_agent(model, [], middleware=[mine, clock("10:00")])
    with caplog.at_level("INFO", logger="cachefriendly_lc"):
        agent.invoke({"messages": [HumanMessage("Hello")]})
    assert any("put CacheFriendlyMiddleware last" in text for text in caplog.messages)


class Later(AgentMiddleware[Any, Any, Any]):
    """Offers the second tool from the second turn on."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        offered = request.tools if len(request.messages) > 1 else request.tools[:1]
        return handler(request.override(tools=offered))


def test_a_tool_that_is_added_later_is_announced_in_the_stable_layout(engine: Engine) -> None:
    """Case 9: only what is said of the new tool is forwarded, and it can be called."""
    talk = Talk(engine, Later(), layout="stable", tools=(add, get_weather))
    talk.turn("Hello", "Hi.")
    called = CALL.replace("add", "get_weather").replace('{"a": 1, "b": 2}', '{"city": "Oslo"}')
    replies = talk.turn("Weather?", called, "It is sunny.")
    assert talk.mine.findings() == ()
    assert [call["name"] for reply in replies for call in reply.tool_calls] == ["get_weather"]
    first, second, _ = engine.reports()
    assert second.reused_tokens == first.prompt_tokens + first.generated_tokens - 1
    prompt = engine.tokenizer.decode(_prompt(engine, talk))
    assert prompt.count("[further tool get_weather]: {") == 1


def test_a_tool_that_is_added_later_is_reported(engine: Engine) -> None:
    """Case 9: reason, first differing token, tokens lost."""
    talk = Talk(engine, Later(), tools=(add, get_weather))
    talk.turn("Hello", "Hi.")
    talk.turn("Hello again", "Hi again.")
    (finding,) = talk.mine.findings()
    assert (finding.reason, finding.field) == (MissReason.TOOLS_CHANGED, "tools")
    assert 0 < finding.tokens_lost < engine.reports()[0].prompt_tokens + 4


def test_langchains_summarization_is_recognised(engine: Engine) -> None:
    talk = Talk(engine, Summary(engine))
    talk.turn("Hello, my name is Ada.", "Hi Ada.")
    talk.turn("How are you?", "Fine.")
    talk.turn("What is my name?", "A summary.", "Ada.")
    finding = next(f for f in talk.mine.findings() if f.cause)
    assert finding.cause == "summarization"
    assert finding.reason in (MissReason.MESSAGE_EDITED, MissReason.MESSAGE_REMOVED)
    assert "SummarizationMiddleware" in finding.fix


def Summary(engine: Engine) -> SummarizationMiddleware[Any, Any]:
    model = ChatCacheFriendly(engine=engine, max_tokens=40)
    return SummarizationMiddleware(
        model, trigger=("messages", 5), keep=("messages", 2), summary_prompt="Sum up: {messages}"
    )


def test_langchains_context_editing_is_recognised(engine: Engine) -> None:
    edit = ClearToolUsesEdit(trigger=1, keep=1, placeholder="(gone)")
    talk = Talk(engine, ContextEditingMiddleware(edits=[edit]))
    talk.turn("1 + 2?", CALL, "It is 3.")
    talk.turn("Again: 1 + 2?", CALL, "It is 3 still.")
    finding = next(f for f in talk.mine.findings() if f.cause)
    assert finding.cause == "context editing"
    assert (finding.reason, finding.field) == (MissReason.MESSAGE_EDITED, "content")
    assert "clear_at_least" in finding.fix


def test_an_unknown_layout_is_refused() -> None:
    model = ChatCacheFriendly(engine=ScriptedEngine("Hello."))
    with pytest.raises(ConfigError, match="layout='tail' is unknown"):
        CacheFriendlyMiddleware(model, layout="tail")  # type: ignore[arg-type]


# What is bound for a system message that changes


def bound(first: str, *versions: str) -> list[dict[str, str]]:
    kept, values = StableSystem(first), []
    for version in versions:
        kept, now = kept.follow(version)
        kept = StableSystem.from_state(kept.to_state())
        values.append(now)
    return values


def test_lines_that_change_in_place_are_bound_under_their_words() -> None:
    assert bound(
        "Be kind.\nTime: 10:00\n17 users", "Be kind.\nTime: 10:05\n17 users", "Be kind.\n\n18 users"
    ) == [
        {"Time": "10:05"},
        {"Time": "(no longer part of the instructions)", "line 3 of the instructions": "18 users"},
    ]


def test_a_line_that_is_as_it_was_is_bound_again() -> None:
    assert bound("Time: 1", "Time: 2", "Time: 1") == [{"Time": "2"}, {"Time": "1"}]


def test_lines_that_come_and_go_are_one_growing_region() -> None:
    first = "Be kind.\n<memory>\nnone\n</memory>\nNever lie."
    assert bound(
        first,
        "Be kind.\n<memory>\nAda likes tea.\nBob too.\n</memory>\nNever lie.",
        first,
        "Be good.\n<memory>\nnone\n</memory>\nNever lie.",
        first + "\nAnd smile.",
    ) == [
        {"instead of lines 3 to 3 of the instructions": "Ada likes tea.\nBob too."},
        {"instead of lines 3 to 3 of the instructions": "none"},
        {"instead of lines 1 to 3 of the instructions": "Be good.\n<memory>\nnone"},
        {
            "instead of lines 1 to 5 of the instructions": (
                "Be kind.\n<memory>\nnone\n</memory>\nNever lie.\nAnd smile."
            )
        },
    ]


def test_lines_that_are_added_at_the_end_are_named_so() -> None:
    assert bound("Be kind.", "Be kind.\nIt rains.") == [
        {"added to the instructions after line 1": "It rains."}
    ]


def test_an_equal_system_message_binds_nothing() -> None:
    assert bound("Be kind.", "Be kind.") == [{}]

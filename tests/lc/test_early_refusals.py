"""When no tool starts early: it could still be refused, or the model fills not all arguments."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    PIIMiddleware,
    ToolCallLimitMiddleware,
)
from langchain.tools import InjectedState, InjectedStore, ToolRuntime
from langchain_core.messages import HumanMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver

from cachefriendly.errors import ConfigError
from cachefriendly.testing import ScriptedEngine
from cachefriendly_lc import CacheFriendlyMiddleware, ChatCacheFriendly
from tests.lc.early import CONFIG, Journal, agent_of, asking, run


class EditCall(AgentMiddleware[Any, Any, Any]):
    def after_model(self, state: Any, runtime: Any) -> None:
        return None


class WrapCall(AgentMiddleware[Any, Any, Any]):
    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(request)


@pytest.mark.parametrize(
    "other",
    [
        HumanInTheLoopMiddleware({"other": True}),
        PIIMiddleware("email", apply_to_output=True),
        ToolCallLimitMiddleware(run_limit=9),
        ModelCallLimitMiddleware(run_limit=9),
        EditCall(),
        WrapCall(),
    ],
    ids=lambda other: type(other).__name__,
)
async def test_no_tool_starts_early_while_another_middleware_could_refuse_it(
    other: Any, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal()
    engine = ScriptedEngine(asking(("one", "x")), "Done.")
    agent = agent_of(engine, [journal.tool("one")], other, early=["one"])
    with caplog.at_level("INFO", logger="cachefriendly_lc.middleware"):
        messages = await run(agent, "invoke")
    assert messages[2].content == "one of x"
    assert any("no tool starts early" in text for text in caplog.messages)


@pytest.mark.parametrize("where", [{"interrupt_before": ["tools"]}, {"interrupt_after": "*"}])
def test_no_tool_starts_early_when_the_agent_stops_before_its_tools(where: Any) -> None:
    journal = Journal()
    model = ChatCacheFriendly(engine=ScriptedEngine(asking(("one", "x")), "Done."))
    agent = create_agent(
        model,
        [journal.tool("one")],
        middleware=[CacheFriendlyMiddleware(model, early_tools=["one"])],
        checkpointer=InMemorySaver(),
        **where,
    )
    agent.invoke({"messages": [HumanMessage("Go.")]}, CONFIG)
    assert journal.entries == []
    agent.invoke(None, CONFIG)
    assert journal.entries == ["one begins", "one ends"]


@tool
def with_state(text: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
    """Reads state."""
    return text


@tool
def with_store(text: str, store: Annotated[Any, InjectedStore()]) -> str:
    """Reads a store."""
    return text


@tool
def with_runtime(text: str, runtime: ToolRuntime) -> str:
    """Reads the runtime."""
    return f"{text} of {runtime.tool_call_id}"


@tool
def with_call_id(text: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
    """Reads its id."""
    return f"{text} of {call_id}"


@pytest.mark.parametrize("injected", [with_state, with_store, with_runtime, with_call_id])
def test_a_tool_with_injected_arguments_is_refused(injected: Any) -> None:
    model = ChatCacheFriendly(engine=ScriptedEngine("Hello."))
    with pytest.raises(ConfigError, match=rf"{injected.name}.*cannot start early"):
        CacheFriendlyMiddleware(model, early_tools=[injected])


@pytest.mark.parametrize("injected", [with_runtime, with_call_id])
async def test_named_only_it_starts_after_the_turn_and_the_log_says_so(
    injected: Any, caplog: pytest.LogCaptureFixture
) -> None:
    engine = ScriptedEngine(asking((injected.name, "x")), "Done.")
    messages = await run(agent_of(engine, [injected], early=[injected.name]), "invoke")
    assert messages[2].content == "x of c1"
    assert [injected.name in text for text in caplog.messages] == [True]


@pytest.mark.parametrize("wrong", ["one", [7], [print]])
def test_early_tools_must_be_a_list_of_names_or_tools(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="early_tools"):
        CacheFriendlyMiddleware(ChatCacheFriendly(engine=ScriptedEngine("x")), early_tools=wrong)

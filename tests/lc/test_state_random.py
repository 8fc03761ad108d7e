"""Random lives of a thread: with diffs the messages are those of lists, at every checkpoint."""

from __future__ import annotations

from typing import Annotated, Any, Required

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import AgentState
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AnyMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from cachefriendly_lc import StateDiffAgentState
from cachefriendly_lc.compat import messages_reducer
from cachefriendly_lc.delta import DiffChannel
from tests.lc.test_state_agent import CONFIG, agent_of, ask, timeline

APPROVED: Any = Command(resume={"decisions": [{"type": "approve"}] * 2})

STEPS = st.tuples(
    st.sampled_from(["ask", "approve", "fork", "retry", "edit", "remove"]),
    st.sampled_from(["sync", "async", "exit"]),
    st.integers(0, 30),
)


class OftenCopied(AgentState[Any]):
    """Full copies every few messages: lives here are short."""

    messages: Required[
        Annotated[list[AnyMessage], DiffChannel(messages_reducer, snapshot_frequency=3)]
    ]


def live(agent: Any, steps: list[tuple[str, Any, int]]) -> list[Any]:
    """Go through the steps; what cannot be done at that point of the thread is left out."""
    for number, (step, durability, place) in enumerate(steps):
        state = agent.get_state(CONFIG)
        messages = state.values.get("messages", [])
        if step == "ask" or not messages:
            ask(agent, f"question {number}", durability=durability)
        elif step == "approve" and state.interrupts:
            agent.invoke(APPROVED, CONFIG, durability=durability)
        elif step in ("fork", "retry"):
            history = [s for s in agent.get_state_history(CONFIG) if s.values.get("messages")]
            old = history[place % len(history)]
            value = {"messages": [HumanMessage(f"fork {number}")]} if step == "fork" else None
            agent.invoke(value, old.config, durability=durability)
        elif step == "edit" and (asked := [m for m in messages if m.type == "human"]):
            edited = HumanMessage("edited", id=asked[place % len(asked)].id)
            agent.update_state(CONFIG, {"messages": [edited]}, as_node="tools")
        elif step == "remove" and messages[0].type == "human":
            agent.update_state(CONFIG, {"messages": [RemoveMessage(messages[0].id)]}, "tools")
    return timeline(agent)


@settings(max_examples=settings().max_examples // 4)
@given(
    st.sampled_from([StateDiffAgentState, OftenCopied]), st.lists(STEPS, max_size=9), st.booleans()
)
def test_random_lives(
    schema: Any, steps: list[tuple[str, Any, int]], asks_for_approval: bool
) -> None:
    added = [HumanInTheLoopMiddleware({"add": True})] if asks_for_approval else []
    lists, diffs = (
        live(agent_of(kind, InMemorySaver(), *added), steps) for kind in (AgentState, schema)
    )
    assert diffs == lists

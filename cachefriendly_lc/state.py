"""`StateDiffAgentState`: an agent's messages stored as what each step added."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, NotRequired, Required

from langchain_core.messages import AnyMessage

from cachefriendly.errors import ConfigError
from cachefriendly_lc.compat import (
    DIFFS_ARE_WHOLE,
    AgentState,
    PrivateStateAttr,
    RemainingStepsManager,
    ResponseT,
    messages_reducer,
)
from cachefriendly_lc.delta import DiffChannel

__all__ = ["StateDiffAgentState"]

if not DIFFS_ARE_WHOLE:
    raise ConfigError(
        f"StateDiffAgentState: the DeltaChannel of langgraph {version('langgraph')} loses messages "
        "on forks and edits; run: pip install -U langgraph (1.2.24 is right)"
    )


class StateDiffAgentState(AgentState[ResponseT]):
    """For ``create_agent(state_schema=...)``, and to be subclassed with fields of your own.

    LangGraph's ``create_react_agent`` takes it too.

    A step costs the bytes of its own messages, not those of the conversation so far. Messages are
    merged as with LangGraph's ``add_messages``, with one difference of LangGraph's own reducer
    for such channels: removing a message that is not there is no error.

    Any checkpoint saver that copies or prunes threads must keep the checkpoints that a thread's
    state is built from. One that does not is found out at the next read (`StateError`); see
    `cachefriendly_lc.state_copy`. Let a thread have one run at a time: of two at once LangGraph
    keeps the later one, and with diffs its history shows the question of the other as well.
    """

    messages: Required[Annotated[list[AnyMessage], DiffChannel(messages_reducer)]]
    # What create_react_agent asks of a state. It is computed, never stored, and LangGraph looks for
    # it in the last place; no input or output of an agent may have it.
    remaining_steps: NotRequired[Annotated[int, PrivateStateAttr, RemainingStepsManager]]

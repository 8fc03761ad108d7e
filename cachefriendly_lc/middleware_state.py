"""What the middleware keeps in an agent's state: the ids of a thread's replies, and its layout.

Handles alone survive in the messages; what they stand for lives in one process. With a checkpointer
each reply's record is stored beside it, as text, so that a thread that goes on elsewhere has the
exact ids it had here.
"""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from cachefriendly_lc.compat import AgentState, PrivateStateAttr
from cachefriendly_lc.delta import TurnsChannel

__all__ = ["LAYOUT", "TURNS", "CacheFriendlyState"]

TURNS, LAYOUT = "cachefriendly_turns", "cachefriendly_layout"


class CacheFriendlyState(AgentState[Any]):
    """The state of an agent with the middleware; its own part is private to it."""

    cachefriendly_turns: NotRequired[TurnsChannel]
    cachefriendly_layout: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]

"""One call of a chat model in the project's own values; adapters build it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cachefriendly.config import Sampling
from cachefriendly.messages import Message, Tool, ToolChoice

__all__ = ["ChatRequest"]


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One call of a chat model, in the project's own values; adapters build it.

    ``response_schema`` constrains the whole answer to JSON of that schema. ``template_arguments``
    are passed to the chat template (``enable_thinking`` and the like) and belong to the identity
    of the prompt. ``session`` is an affinity hint, never a key of the cache. ``moment`` is what a
    template that prints the time takes for now; None: the time of the conversation's first call,
    or as `EngineConfig.clock` says. A session that outlives the process stores it in
    `AgentState.clock`. ``parallel_tool_calls``: True allows a required reply to be several calls
    instead of one; False ends every reply behind its first call; None leaves it to the model.
    ``raw_text``: `RawDelta` events say what is generated, as it is generated.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    response_schema: Mapping[str, Any] | None = None
    sampling: Sampling = field(default_factory=Sampling)
    namespace: str = ""
    session: str | None = None
    template_arguments: Mapping[str, Any] = field(default_factory=dict)
    moment: datetime | None = None
    parallel_tool_calls: bool | None = None
    raw_text: bool = False

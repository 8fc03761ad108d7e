"""Forks of an agent's conversation: its structured output, and its last word when it is stopped.

LlamaIndex asks for both with a prompt of its own, which is read from its first word. A fork has the
live conversation's system prompt, tools and messages, and one more message at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.bridge.pydantic import BaseModel

from cachefriendly_li.agent_run import turn_of
from cachefriendly_li.early_turn import Turn
from cachefriendly_li.llm import CacheFriendlyLLM
from cachefriendly_li.tools import tool_spec

__all__ = ["ForkLLM", "View", "live_turn", "with_forked_output"]

_Structured: TypeAlias = Callable[[list[ChatMessage]], Coroutine[Any, Any, dict[str, Any]]]

_INSTRUCTION: Final = (
    "Given the conversation, write the output as one JSON object of this schema:\n{schema}"
)


class View:
    """An object with some attributes replaced, for a method of the original that reads them."""

    def __init__(self, whole: Any, **replaced: Any) -> None:
        self.__dict__.update(replaced)
        self._whole = whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)


class ForkLLM:
    """An LLM asked in a fork of a turn: with the turn's tools in the prompt, but no calls."""

    def __init__(self, turn: Turn, **options: Any) -> None:
        self._llm = turn.llm
        specs = [tool_spec(tool) for tool in turn.tools] if turn.offers_tools else []
        self._options = {"tools": specs, "tool_choice": "none", **options}
        session = getattr(turn.llm, "session_id", None)
        if session is not None:
            self._options["session_id"] = f"{session} aside"

    async def achat(self, messages: list[ChatMessage]) -> Any:
        return await self._llm.achat(messages, **self._options)

    async def astream_chat(self, messages: list[ChatMessage]) -> Any:
        return await self._llm.astream_chat(messages, **self._options)


def live_turn(agent: Any) -> Turn | None:
    """The turn that is forked; None where such questions have LlamaIndex's prompts."""
    turn = turn_of(agent)
    if turn is None or not isinstance(turn.llm, CacheFriendlyLLM):
        return None
    return turn if agent.layout == "stable" else None


def with_forked_output(workflow: Any, turn: Turn | None, output_cls: type[BaseModel] | None) -> Any:
    """The workflow as the original shall see it: its structured output is a fork of the turn."""
    if turn is None or turn.reply is None or output_cls is None:
        return workflow
    fork = _structured_fork(turn, turn.reply, output_cls)
    return View(workflow, output_cls=None, structured_output_fn=fork)


def _structured_fork(turn: Turn, reply: ChatMessage, output_cls: type[BaseModel]) -> _Structured:
    """Asks for a finished turn's structured output."""
    schema = output_cls.model_json_schema()
    forked = ForkLLM(turn, response_schema=schema)
    text = _INSTRUCTION.format(schema=json.dumps(schema, ensure_ascii=False))
    asked = [*turn.asked, reply, ChatMessage(role=MessageRole.USER, content=text)]

    async def ask(messages: list[ChatMessage]) -> dict[str, Any]:
        response = await forked.achat(asked)
        value = output_cls.model_validate_json(response.message.content or "")
        dumped: dict[str, Any] = value.model_dump(mode="json")
        return dumped

    return ask

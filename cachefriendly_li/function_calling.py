"""Tool calls of an LLM: what LlamaIndex asks of a `FunctionCallingLLM`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    MessageRole,
    ToolCallBlock,
)
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import BaseTool

from cachefriendly_li.tools import tool_selections, tool_spec

__all__ = ["ToolCalling"]


class ToolCalling(FunctionCallingLLM):
    """Tools go to the chat template, calls come as `ToolCallBlock`."""

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        messages = list(chat_history or [])
        if isinstance(user_msg, str):
            user_msg = ChatMessage(role=MessageRole.USER, content=user_msg)
        if user_msg is not None:
            messages.append(user_msg)
        specs = [tool_spec(tool) for tool in tools]
        return {
            "messages": messages,
            "tools": specs,
            "tool_required": tool_required,
            "allow_parallel_tool_calls": allow_parallel_tool_calls,
            **kwargs,
        }

    def _validate_chat_with_tools_response(
        self,
        response: ChatResponse,
        tools: Sequence[BaseTool],
        allow_parallel_tool_calls: bool = False,
        **kwargs: Any,
    ) -> ChatResponse:
        """Keep the first call when the caller wants no parallel ones.

        The engine ends a reply there; but some dialects tell their calls only at the end.
        """
        if not allow_parallel_tool_calls:
            blocks = response.message.blocks
            calls = [i for i, block in enumerate(blocks) if isinstance(block, ToolCallBlock)]
            response.message.blocks = [b for i, b in enumerate(blocks) if i not in calls[1:]]
        return response

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        selections = tool_selections(response.message)
        if not selections and error_on_no_tool_call:
            raise ValueError(f"Expected at least one tool call, but got {len(selections)}.")
        return selections

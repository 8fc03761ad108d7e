"""Streams of structured output through a forced tool call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.llms.structured_llm import StructuredLLM
from llama_index.core.program.function_program import get_function_tool
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.types import Model

from cachefriendly_li.function_calling import ToolCalling
from cachefriendly_li.tools import tool_selections

__all__ = ["EngineStructuredLLM", "StructuredStreams"]


class EngineStructuredLLM(StructuredLLM):
    """LlamaIndex's, whose events say of the LLM what it says of itself."""

    def to_payload(self) -> dict[str, Any]:
        """The stock one reads the context window, in the event loop."""
        return {**self.llm.to_payload(), "class_name": self.class_name()}


class StructuredStreams(ToolCalling):
    """The stock streaming program neither forces its tool nor reads `ToolCallBlock`.

    The object comes whole, when its last token was generated.
    """

    def as_structured_llm(self, output_cls: type[BaseModel], **kwargs: Any) -> StructuredLLM:
        return EngineStructuredLLM(llm=self, output_cls=output_cls, **kwargs)

    def _structured_stream_call(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Generator[Any, None, None]:
        call = self._structured_call(output_cls, prompt, llm_kwargs, prompt_args)
        chunks = self.stream_chat_with_tools(**call)
        with closing(chunks):
            for chunk in chunks:
                yield from _objects(output_cls, chunk)

    async def _structured_astream_call(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> AsyncGenerator[Any, None]:
        call = self._structured_call(output_cls, prompt, llm_kwargs, prompt_args)
        chunks = await self.astream_chat_with_tools(**call)

        async def objects() -> AsyncGenerator[Any, None]:
            async with aclosing(chunks):
                async for chunk in chunks:
                    for value in _objects(output_cls, chunk):
                        yield value

        return objects()

    def _structured_call(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate,
        llm_kwargs: dict[str, Any] | None,
        prompt_args: dict[str, Any],
    ) -> dict[str, Any]:
        messages: list[ChatMessage] = prompt.format_messages(llm=self, **prompt_args)
        return {
            **(llm_kwargs or {}),
            "tools": [get_function_tool(output_cls)],
            "chat_history": self._extend_messages(messages),
            "tool_required": True,
        }


def _objects(output_cls: type[Model], chunk: ChatResponse) -> list[Model]:
    if chunk.raw is None:  # the last chunk has the usage and repeats every call
        return []
    return [output_cls.model_validate(call.tool_kwargs) for call in tool_selections(chunk.message)]

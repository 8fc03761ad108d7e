"""Streams of structured output through a forced tool call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from typing import Any, Final, cast

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.llms.structured_llm import StructuredLLM
from llama_index.core.program.function_program import get_function_tool
from llama_index.core.prompts import BasePromptTemplate, PromptTemplate
from llama_index.core.types import Model, PydanticProgramMode

from cachefriendly_li.function_calling import ToolCalling
from cachefriendly_li.growing_object import GrowingObject

__all__ = ["EngineStructuredLLM", "StructuredStreams"]


_BY_TOOL: Final = (PydanticProgramMode.DEFAULT, PydanticProgramMode.FUNCTION)


class EngineStructuredLLM(StructuredLLM):
    """LlamaIndex's, whose events say of the LLM what it says of itself."""

    def to_payload(self) -> dict[str, Any]:
        """The stock one reads the context window, in the event loop."""
        return {**self.llm.to_payload(), "class_name": self.class_name()}


class StructuredStreams(ToolCalling):
    """The stock streaming program neither forces its tool nor reads `ToolCallBlock`.

    The object grows as its arguments are generated, where the model writes them as JSON; the last
    one is whole. ``pydantic_program_mode`` may ask for a program that calls no tool: then it is
    LlamaIndex's.
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
        if self.pydantic_program_mode not in _BY_TOOL:
            yield from super()._structured_stream_call(
                output_cls, cast(PromptTemplate, prompt), llm_kwargs, **prompt_args
            )
            return
        call = self._structured_call(output_cls, prompt, llm_kwargs, prompt_args)
        chunks, growing = self.stream_chat_with_tools(**call), GrowingObject(output_cls)
        with closing(chunks):
            for chunk in chunks:
                yield from growing.read(chunk)

    async def _structured_astream_call(
        self,
        output_cls: type[Model],
        prompt: BasePromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> AsyncGenerator[Any, None]:
        if self.pydantic_program_mode not in _BY_TOOL:
            return await super()._structured_astream_call(
                output_cls, cast(PromptTemplate, prompt), llm_kwargs, **prompt_args
            )
        call = self._structured_call(output_cls, prompt, llm_kwargs, prompt_args)
        chunks = await self.astream_chat_with_tools(**call)
        growing = GrowingObject(output_cls)

        async def objects() -> AsyncGenerator[Any, None]:
            async with aclosing(chunks):
                async for chunk in chunks:
                    for value in growing.read(chunk):
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
            "raw_text": True,
        }

"""`ContextChatEngine` whose retrieved nodes stand where they cost no prefix."""

from __future__ import annotations

from typing import Any, cast

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.callbacks import CallbackManager, trace_method
from llama_index.core.chat_engine import ContextChatEngine as StockContextChatEngine
from llama_index.core.chat_engine.types import AgentChatResponse, StreamingAgentChatResponse
from llama_index.core.llms.llm import LLM
from llama_index.core.memory import BaseMemory
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import NodeWithScore

from cachefriendly_li.arguments import chosen_llm, warn_ignored_by_engine
from cachefriendly_li.memory import default_memory
from cachefriendly_li.nodes import Layout, as_sent, as_shown, check_layout
from cachefriendly_li.nodes_prompts import NodesPrompts
from cachefriendly_li.nodes_turn import NodesTurn, StockTurn

__all__ = ["ContextChatEngine"]


class ContextChatEngine(StockContextChatEngine):
    """LlamaIndex's `ContextChatEngine` with the same arguments, and ``layout``.

    ``layout="tail"``: the system prompt or the prefix messages come first and never change, the
    history is appended to, and ``context_template`` with its nodes is the beginning of the newest
    user message. It stays there as it was sent, so a turn prefills nodes and question only.
    `chat_history` shows the questions. ``layout="stock"`` is LlamaIndex's own placement: nodes in
    the system message, exchanged each turn.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the signature is LlamaIndex's
        self,
        retriever: BaseRetriever,
        llm: LLM,
        memory: BaseMemory,
        prefix_messages: list[ChatMessage],
        node_postprocessors: list[BaseNodePostprocessor] | None = None,
        context_template: str | PromptTemplate | None = None,
        context_refine_template: str | PromptTemplate | None = None,
        callback_manager: CallbackManager | None = None,
        layout: Layout = "tail",
    ) -> None:
        super().__init__(
            retriever,
            llm=llm,
            memory=memory,
            prefix_messages=prefix_messages,
            node_postprocessors=node_postprocessors,
            context_template=context_template,
            context_refine_template=context_refine_template,
            callback_manager=callback_manager,
        )
        self._layout = check_layout(layout)

    @classmethod
    def from_defaults(  # noqa: PLR0913, PLR0917 - the signature is LlamaIndex's
        cls,
        retriever: BaseRetriever,
        chat_history: list[ChatMessage] | None = None,
        memory: BaseMemory | None = None,
        system_prompt: str | None = None,
        prefix_messages: list[ChatMessage] | None = None,
        node_postprocessors: list[BaseNodePostprocessor] | None = None,
        context_template: str | PromptTemplate | None = None,
        context_refine_template: str | PromptTemplate | None = None,
        llm: LLM | None = None,
        layout: Layout = "tail",
        **kwargs: Any,
    ) -> ContextChatEngine:
        llm = chosen_llm(llm, kwargs)
        warn_ignored_by_engine(kwargs, cls.from_defaults)
        if memory is None and check_layout(layout) == "tail":
            memory = default_memory(llm, chat_history or [])
        engine = super().from_defaults(
            retriever,
            chat_history=chat_history,
            memory=memory,
            system_prompt=system_prompt,
            prefix_messages=prefix_messages,
            node_postprocessors=node_postprocessors,
            context_template=context_template,
            context_refine_template=context_refine_template,
            llm=llm,
            **kwargs,
        )
        ours = cast(ContextChatEngine, engine)
        ours._layout = check_layout(layout)
        return ours

    @trace_method("chat")
    def chat(
        self,
        message: str,
        chat_history: list[ChatMessage] | None = None,
        prev_chunks: list[NodeWithScore] | None = None,
    ) -> AgentChatResponse:
        return self._turn(message, chat_history, prev_chunks).chat()

    @trace_method("chat")
    def stream_chat(
        self,
        message: str,
        chat_history: list[ChatMessage] | None = None,
        prev_chunks: list[NodeWithScore] | None = None,
    ) -> StreamingAgentChatResponse:
        return self._turn(message, chat_history, prev_chunks).stream_chat()

    @trace_method("chat")
    async def achat(
        self,
        message: str,
        chat_history: list[ChatMessage] | None = None,
        prev_chunks: list[NodeWithScore] | None = None,
    ) -> AgentChatResponse:
        return await (await self._aturn(message, chat_history, prev_chunks)).achat()

    @trace_method("chat")
    async def astream_chat(
        self,
        message: str,
        chat_history: list[ChatMessage] | None = None,
        prev_chunks: list[NodeWithScore] | None = None,
    ) -> StreamingAgentChatResponse:
        return await (await self._aturn(message, chat_history, prev_chunks)).astream_chat()

    @property
    def chat_history(self) -> list[ChatMessage]:
        """The conversation; of a message with nodes the question."""
        return [as_shown(message) for message in self._memory.get_all()]

    def _turn(
        self,
        message: str,
        history: list[ChatMessage] | None,
        before: list[NodeWithScore] | None,
    ) -> NodesTurn | StockTurn:
        if self._layout == "stock":
            return StockTurn(super(), message, history, before)
        if history is not None:
            self._memory.set([as_sent(earlier) for earlier in history])
        nodes = self._get_nodes(message) or before or []
        return NodesTurn(self._prompts(), self._memory, message, nodes, message)

    async def _aturn(
        self,
        message: str,
        history: list[ChatMessage] | None,
        before: list[NodeWithScore] | None,
    ) -> NodesTurn | StockTurn:
        if self._layout == "stock":
            return StockTurn(super(), message, history, before)
        if history is not None:
            await self._memory.aset([as_sent(earlier) for earlier in history])
        nodes = await self._aget_nodes(message) or before or []
        return NodesTurn(self._prompts(), self._memory, message, nodes, message)

    def _prompts(self) -> NodesPrompts:
        return NodesPrompts(
            llm=self._llm,
            callback_manager=self.callback_manager,
            prefix=tuple(self._prefix_messages),
            context=self._context_template,
            refining=self._context_refine_template,
            memory_limit=getattr(self._memory, "token_limit", None),
        )

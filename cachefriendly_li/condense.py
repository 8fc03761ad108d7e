"""`CondensePlusContextChatEngine` over a live cache: questions are condensed in a fork."""

from __future__ import annotations

import logging
from typing import Any, Final, cast

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.callbacks import CallbackManager, trace_method
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine as StockCondensePlusContextChatEngine,
)
from llama_index.core.chat_engine.types import AgentChatResponse, StreamingAgentChatResponse
from llama_index.core.llms.llm import LLM
from llama_index.core.memory import BaseMemory
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts import PromptTemplate

from cachefriendly.errors import ContextOverflow
from cachefriendly.messages import HANDLE_KEY
from cachefriendly_li.arguments import chosen_llm, warn_ignored_by_engine
from cachefriendly_li.chat_engine_turn import MemoryTurn
from cachefriendly_li.llm import CacheFriendlyLLM
from cachefriendly_li.memory import default_memory
from cachefriendly_li.nodes import SENT_KEY, Layout, as_sent, as_shown, check_layout, user_message
from cachefriendly_li.nodes_prompts import NodesPrompts
from cachefriendly_li.nodes_turn import NodesTurn, StockTurn

__all__ = ["CondensePlusContextChatEngine"]

log = logging.getLogger(__name__)

_ABOVE: Final = "(the conversation above)"
_OURS: Final = (HANDLE_KEY, SENT_KEY)


class CondensePlusContextChatEngine(StockCondensePlusContextChatEngine):
    """LlamaIndex's `CondensePlusContextChatEngine` with the same arguments, and ``layout``.

    ``layout="tail"``: the system prompt comes first and never changes, the history is appended
    to, and ``context_prompt`` with its nodes is the beginning of the newest user message, where
    it stays. A question is condensed behind the live conversation instead of over a copy of it:
    ``condense_prompt`` reads "(the conversation above)" for ``{chat_history}``, only the
    instruction is prefilled, and as a fork of the conversation it cannot evict it. With an LLM
    of another kind, or where that does not fit the window, it is condensed as LlamaIndex does.
    ``layout="stock"`` is LlamaIndex's own placement of both.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the signature is LlamaIndex's
        self,
        retriever: BaseRetriever,
        llm: LLM,
        memory: BaseMemory,
        context_prompt: str | PromptTemplate | None = None,
        context_refine_prompt: str | PromptTemplate | None = None,
        condense_prompt: str | PromptTemplate | None = None,
        system_prompt: str | None = None,
        skip_condense: bool = False,
        node_postprocessors: list[BaseNodePostprocessor] | None = None,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
        layout: Layout = "tail",
    ) -> None:
        super().__init__(
            retriever,
            llm=llm,
            memory=memory,
            context_prompt=context_prompt,
            context_refine_prompt=context_refine_prompt,
            condense_prompt=condense_prompt,
            system_prompt=system_prompt,
            skip_condense=skip_condense,
            node_postprocessors=node_postprocessors,
            callback_manager=callback_manager,
            verbose=verbose,
        )
        self._layout = check_layout(layout)

    @classmethod
    def from_defaults(  # noqa: PLR0913, PLR0917 - the signature is LlamaIndex's
        cls,
        retriever: BaseRetriever,
        llm: LLM | None = None,
        chat_history: list[ChatMessage] | None = None,
        memory: BaseMemory | None = None,
        system_prompt: str | None = None,
        context_prompt: str | PromptTemplate | None = None,
        context_refine_prompt: str | PromptTemplate | None = None,
        condense_prompt: str | PromptTemplate | None = None,
        skip_condense: bool = False,
        node_postprocessors: list[BaseNodePostprocessor] | None = None,
        verbose: bool = False,
        layout: Layout = "tail",
        **kwargs: Any,
    ) -> CondensePlusContextChatEngine:
        llm = chosen_llm(llm, kwargs)
        warn_ignored_by_engine(kwargs, cls.from_defaults)
        if memory is None and check_layout(layout) == "tail":
            memory = default_memory(llm, chat_history or [])
        engine = super().from_defaults(
            retriever,
            llm=llm,
            chat_history=chat_history,
            memory=memory,
            system_prompt=system_prompt,
            context_prompt=context_prompt,
            context_refine_prompt=context_refine_prompt,
            condense_prompt=condense_prompt,
            skip_condense=skip_condense,
            node_postprocessors=node_postprocessors,
            verbose=verbose,
            **kwargs,
        )
        ours = cast(CondensePlusContextChatEngine, engine)
        ours._layout = check_layout(layout)
        return ours

    @trace_method("chat")
    def chat(
        self, message: str, chat_history: list[ChatMessage] | None = None
    ) -> AgentChatResponse:
        return self._turn(message, chat_history).chat()

    @trace_method("chat")
    def stream_chat(
        self, message: str, chat_history: list[ChatMessage] | None = None
    ) -> StreamingAgentChatResponse:
        return self._turn(message, chat_history).stream_chat()

    @trace_method("chat")
    async def achat(
        self, message: str, chat_history: list[ChatMessage] | None = None
    ) -> AgentChatResponse:
        return await (await self._aturn(message, chat_history)).achat()

    @trace_method("chat")
    async def astream_chat(
        self, message: str, chat_history: list[ChatMessage] | None = None
    ) -> StreamingAgentChatResponse:
        return await (await self._aturn(message, chat_history)).astream_chat()

    @property
    def chat_history(self) -> list[ChatMessage]:
        """The conversation; of a message with nodes the question."""
        return [as_shown(message) for message in self._memory.get_all()]

    def _turn(self, message: str, history: list[ChatMessage] | None) -> NodesTurn | StockTurn:
        if self._layout == "stock":
            return StockTurn(super(), message, history)
        if history is not None:
            self._memory.set([as_sent(earlier) for earlier in history])
        prompts = self._prompts()
        held = MemoryTurn(self._memory, prompts.prefix).history(message)
        question = self._condense_question(held, message)
        self._tell(question)
        nodes = self._get_nodes(question)
        return NodesTurn(prompts, self._memory, message, nodes, question)

    async def _aturn(
        self, message: str, history: list[ChatMessage] | None
    ) -> NodesTurn | StockTurn:
        if self._layout == "stock":
            return StockTurn(super(), message, history)
        if history is not None:
            await self._memory.aset([as_sent(earlier) for earlier in history])
        prompts = self._prompts()
        held = await MemoryTurn(self._memory, prompts.prefix).ahistory(message)
        question = await self._acondense_question(held, message)
        self._tell(question)
        nodes = await self._aget_nodes(question)
        return NodesTurn(prompts, self._memory, message, nodes, question)

    # -- condensing -------------------------------------------------------------------------------

    def _condense_question(self, chat_history: list[ChatMessage], latest_message: str) -> str:
        if self._can_fork(chat_history):
            fork, options = self._fork(chat_history, latest_message)
            try:
                return str(self._llm.chat(fork, **options).message.content)
            except ContextOverflow:
                log.debug("condensing over a copy: the fork does not fit the window")
        return super()._condense_question(_plain(chat_history), latest_message)

    async def _acondense_question(
        self, chat_history: list[ChatMessage], latest_message: str
    ) -> str:
        if self._can_fork(chat_history):
            fork, options = self._fork(chat_history, latest_message)
            try:
                return str((await self._llm.achat(fork, **options)).message.content)
            except ContextOverflow:
                log.debug("condensing over a copy: the fork does not fit the window")
        return await super()._acondense_question(_plain(chat_history), latest_message)

    def _can_fork(self, history: list[ChatMessage]) -> bool:
        wanted = self._layout == "tail" and bool(history) and not self._skip_condense
        return wanted and isinstance(self._llm, CacheFriendlyLLM)

    def _fork(
        self, history: list[ChatMessage], message: str
    ) -> tuple[list[ChatMessage], dict[str, Any]]:
        """The conversation as it was sent and the instruction behind it, in a session apart."""
        asked = self._condense_prompt_template.format(chat_history=_ABOVE, question=message)
        conversation = [*self._prefix(), *history, user_message(asked)]
        session = getattr(self._llm, "session_id", None) or "chat"
        return self._llm._extend_messages(conversation), {"session_id": f"{session}/condense"}

    def _tell(self, question: str) -> None:
        log.info("Condensed question: %s", question)
        if self._verbose:
            print(f"Condensed question: {question}")  # noqa: T201 - as LlamaIndex does

    def _prefix(self) -> list[ChatMessage]:
        if not self._system_prompt:
            return []
        role = self._llm.metadata.system_role
        return [ChatMessage(role=role, content=self._system_prompt)]

    def _prompts(self) -> NodesPrompts:
        return NodesPrompts(
            llm=self._llm,
            callback_manager=self.callback_manager,
            prefix=tuple(self._prefix()),
            context=self._context_prompt_template,
            refining=self._context_refine_prompt_template,
            memory_limit=getattr(self._memory, "token_limit", None),
        )


def _plain(history: list[ChatMessage]) -> list[ChatMessage]:
    """Questions and answers alone: LlamaIndex's copy prints whatever else a message carries."""
    plain = []
    for message in map(as_shown, history):
        extras = {k: v for k, v in message.additional_kwargs.items() if k not in _OURS}
        plain.append(message.model_copy(update={"additional_kwargs": extras}))
    return plain

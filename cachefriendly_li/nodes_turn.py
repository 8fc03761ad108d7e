"""A turn with retrieved nodes, ours or LlamaIndex's own, in the four ways of chatting."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.chat_engine.types import AgentChatResponse, StreamingAgentChatResponse
from llama_index.core.memory import BaseMemory
from llama_index.core.schema import NodeWithScore
from llama_index.core.tools import ToolOutput

from cachefriendly_li.chat_engine_turn import MemoryTurn
from cachefriendly_li.chat_stream import LiveChatResponse
from cachefriendly_li.nodes import user_message
from cachefriendly_li.nodes_prompts import NodesPrompts
from cachefriendly_li.nodes_synthesizer import NodesSynthesizer

__all__ = ["NodesTurn", "StockTurn"]


class NodesTurn:
    """One message of a user, the nodes found for it, and what they were searched with.

    Without nodes the LLM is not asked and the answer is LlamaIndex's "Empty Response".
    """

    def __init__(
        self,
        prompts: NodesPrompts,
        memory: BaseMemory,
        message: Any,
        nodes: Sequence[NodeWithScore],
        searched: Any,
    ) -> None:
        self._prompts = prompts
        self._memory = memory
        self._message = message
        self._nodes = list(nodes)
        self._searched = searched

    def chat(self) -> AgentChatResponse:
        with MemoryTurn(self._memory, self._prompts.prefix) as turn:
            synthesizer = NodesSynthesizer(self._prompts, turn)
            response = synthesizer.synthesize(self._message, self._nodes)
            if not self._nodes:
                turn.begin(user_message(str(self._message)))
            self._memory.put(synthesizer.reply)
        return AgentChatResponse(response=str(response), **self._sources())

    async def achat(self) -> AgentChatResponse:
        async with MemoryTurn(self._memory, self._prompts.prefix) as turn:
            # Constructing it reads what the model's configuration says.
            synthesizer = await asyncio.to_thread(NodesSynthesizer, self._prompts, turn)
            response = await synthesizer.asynthesize(self._message, self._nodes)
            if not self._nodes:
                await turn.abegin(user_message(str(self._message)))
            await self._memory.aput(synthesizer.reply)
        return AgentChatResponse(response=str(response), **self._sources())

    def stream_chat(self) -> LiveChatResponse:
        with MemoryTurn(self._memory, self._prompts.prefix) as turn:
            synthesizer = NodesSynthesizer(self._prompts, turn, streaming=True)
            response = synthesizer.synthesize(self._message, self._nodes)
            assert isinstance(response, StreamingResponse)
            if not self._nodes:
                turn.begin(user_message(str(self._message)))
            chunks = turn.watch(synthesizer.chunks(response.response_gen))
        reply = LiveChatResponse(chat_stream=chunks, **self._sources())
        reply.start(self._memory)
        return reply

    async def astream_chat(self) -> LiveChatResponse:
        async with MemoryTurn(self._memory, self._prompts.prefix) as turn:
            make = NodesSynthesizer
            synthesizer = await asyncio.to_thread(make, self._prompts, turn, streaming=True)
            response = await synthesizer.asynthesize(self._message, self._nodes)
            assert isinstance(response, AsyncStreamingResponse)
            if not self._nodes:
                await turn.abegin(user_message(str(self._message)))
            chunks = turn.awatch(synthesizer.achunks(response.response_gen))
        reply = LiveChatResponse(achat_stream=chunks, **self._sources())
        reply.astart(self._memory)
        return reply

    def _sources(self) -> dict[str, Any]:
        source = ToolOutput(
            tool_name="retriever",
            content=str(self._nodes),
            raw_input={"message": self._searched},
            raw_output=self._nodes,
        )
        return {"sources": [source], "source_nodes": self._nodes}


class StockTurn:
    """The turn as LlamaIndex's own chat engine takes it, with nodes where that one puts them.

    ``stock`` is ``super()`` of the engine, ``asked`` what one of its call forms is called with.
    """

    def __init__(self, stock: Any, *asked: Any) -> None:
        self._stock = stock
        self._asked = asked

    def chat(self) -> AgentChatResponse:
        reply: AgentChatResponse = self._stock.chat(*self._asked)
        return reply

    async def achat(self) -> AgentChatResponse:
        reply: AgentChatResponse = await self._stock.achat(*self._asked)
        return reply

    def stream_chat(self) -> StreamingAgentChatResponse:
        reply: StreamingAgentChatResponse = self._stock.stream_chat(*self._asked)
        return reply

    async def astream_chat(self) -> StreamingAgentChatResponse:
        reply: StreamingAgentChatResponse = await self._stock.astream_chat(*self._asked)
        return reply

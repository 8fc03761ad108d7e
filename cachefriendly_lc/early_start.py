"""How LangChain's tools run while the model still writes, and how the tool node gets those runs.

What the tool node invokes instead of a started tool is a stand-in that waits for the run. So its
error handling, its checks and every wrapper around it see what they would see without us.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import abstractmethod
from collections.abc import Collection, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Any

from langchain_core.messages import ToolCall as LCToolCall
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp

from cachefriendly.early_start import EarlyRuns, Run, Started, look_at
from cachefriendly.messages import ToolCall
from cachefriendly_lc.convert import tool_call_to_langchain

__all__ = ["LoopStarter", "StandIn", "Starter", "ThreadStarter"]

log = logging.getLogger(__name__)


class StandIn(BaseTool):
    """Takes a started tool's place for one call: the first invocation gets the started run.

    An invocation with other arguments, or a further one (a retry), runs the tool itself. So does
    one whose run ended in an interrupt, which must be raised where the graph can resume it.
    """

    tool: BaseTool
    started: Any

    def __init__(self, tool: BaseTool, started: Started) -> None:
        super().__init__(
            name=tool.name,
            description=tool.description,
            args_schema=tool.args_schema,
            return_direct=tool.return_direct,
            tags=tool.tags,
            metadata=tool.metadata,
            response_format=tool.response_format,
            tool=tool,
            started=started,
        )

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        started = self._claim(input)
        if started is not None:
            try:
                return started.result()
            except (CancelledError, GraphBubbleUp):
                log.debug("a call of tool %s runs again, its early run came to nothing", self.name)
        return self.tool.invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        started = self._claim(input)
        if started is not None:
            try:
                return await started.aresult()
            except (CancelledError, GraphBubbleUp):
                log.debug("a call of tool %s runs again, its early run came to nothing", self.name)
        return await self.tool.ainvoke(input, config, **kwargs)

    def _claim(self, input: Any) -> Started | None:
        started: Started | None = self.started
        self.started = None
        if started is not None and not _answers(started, input):
            started.cancel()
            return None
        return started

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        return self.tool._run(*args, **kwargs)


def _answers(started: Started, call: Any) -> bool:
    """Whether the run is of exactly that call: nobody changed it meanwhile."""
    if not isinstance(call, dict):
        return False
    name, arguments, call_id = call.get("name"), call.get("args"), call.get("id")
    return started.answers(ToolCall(name or "", arguments or {}, call_id or ""))


class Starter(EarlyRuns):
    """Starts the tools of one model call.

    Args:
        tools: those that may start, by name.
        config: of the node that calls the model. A tool gets it as it would from the tool node
            (callbacks, tags, metadata, configurable) with that node's name.
    """

    def __init__(self, tools: Mapping[str, BaseTool], config: RunnableConfig) -> None:
        super().__init__()
        self._tools = tools
        self._limit = config.get("max_concurrency")
        metadata = {**(config.get("metadata") or {}), "langgraph_node": "tools"}
        self._config: RunnableConfig = {**config, "metadata": metadata}
        self._config.pop("run_id", None)
        self._context = copy_context()

    def _begin(self, call: ToolCall) -> Run | None:
        tool = self._tools.get(call.name)
        if tool is None:
            return None
        return self._run(tool, tool_call_to_langchain(call), self._context.copy())

    @abstractmethod
    def _run(self, tool: BaseTool, call: LCToolCall, context: Context) -> Run | None:
        """Run the tool in that context; None where it cannot run from here."""


class ThreadStarter(Starter):
    """For agents that run synchronously: every tool in a thread of its own."""

    _pool: ThreadPoolExecutor | None = None

    def _run(self, tool: BaseTool, call: LCToolCall, context: Context) -> Future[Any]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._limit, thread_name_prefix="cachefriendly-tool")
        return self._pool.submit(context.run, tool.invoke, call, self._config)

    def cancel_all_but(self, call_ids: Collection[str] = ()) -> None:
        super().cancel_all_but(call_ids)
        if self._pool is not None:
            self._pool.shutdown(wait=False)  # what was submitted still runs


class LoopStarter(Starter):
    """For agents on an event loop: every tool is a task of it, as in the tool node."""

    def __init__(self, tools: Mapping[str, BaseTool], config: RunnableConfig) -> None:
        super().__init__(tools, config)
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._room = asyncio.Semaphore(self._limit) if self._limit else None

    def _run(self, tool: BaseTool, call: LCToolCall, context: Context) -> asyncio.Task[Any] | None:
        if threading.get_ident() != self._thread:
            return None  # the model is called from another thread: tasks are not made from there
        task = self._loop.create_task(self._invoke(tool, call), context=context)
        task.add_done_callback(look_at)
        return task

    async def _invoke(self, tool: BaseTool, call: LCToolCall) -> Any:
        if self._room is None:
            return await tool.ainvoke(call, self._config)
        async with self._room:
            return await tool.ainvoke(call, self._config)

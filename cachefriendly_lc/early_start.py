"""Tools that run while the model still writes: started by call, claimed by call id, or cancelled.

What the tool node invokes instead of a started tool is a stand-in that waits for the run. So its
error handling, its checks and every wrapper around it see what they would see without us.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Any

from langchain_core.messages import ToolCall
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp

__all__ = ["LoopStarter", "StandIn", "Started", "Starter", "ThreadStarter"]

log = logging.getLogger(__name__)


class Started:
    """One tool call that runs already, in a thread or as a task of the agent's loop."""

    def __init__(self, call: ToolCall, run: Future[Any] | asyncio.Task[Any]) -> None:
        self.call = call
        self._run = run

    def answers(self, call: Any) -> bool:
        """Whether this is the run of exactly that call: nobody changed it meanwhile."""
        same = isinstance(call, dict) and call.get("id") == self.call["id"]
        return same and call.get("name") == self.call["name"] and call["args"] == self.call["args"]

    @property
    def done(self) -> bool:
        return self._run.done()

    def cancel(self) -> None:
        """Stop it if it can be stopped: a task can, a thread that has begun cannot."""
        self._run.cancel()

    def result(self) -> Any:
        """What the tool returned or raised; waits for it."""
        if isinstance(self._run, Future):
            return self._run.result()
        raise CancelledError  # a task belongs to its loop; a thread cannot wait for it there

    async def aresult(self) -> Any:
        if self._run.cancelled():
            raise CancelledError
        if isinstance(self._run, Future):
            return await asyncio.wrap_future(self._run)
        if self._run.get_loop() is not asyncio.get_running_loop():
            raise CancelledError
        return await self._run


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
        if started is not None and not started.answers(input):
            started.cancel()
            return None
        return started

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        return self.tool._run(*args, **kwargs)


class Starter(ABC):
    """Starts the tools of one model call.

    Args:
        tools: those that may start, by name.
        config: of the node that calls the model. A tool gets it as it would from the tool node
            (callbacks, tags, metadata, configurable) with that node's name.
    """

    def __init__(self, tools: Mapping[str, BaseTool], config: RunnableConfig) -> None:
        self._tools = tools
        self._limit = config.get("max_concurrency")
        metadata = {**(config.get("metadata") or {}), "langgraph_node": "tools"}
        self._config: RunnableConfig = {**config, "metadata": metadata}
        self._config.pop("run_id", None)
        self._context = copy_context()
        self._started: dict[str, Started] = {}
        self._unclaimed: set[str] = set()

    def start(self, call: ToolCall) -> None:
        """Run a call now, if its tool may start early."""
        tool = self._tools.get(call["name"])
        call_id = call["id"]
        if tool is None or not call_id or call_id in self._started:
            return
        run = self._begin(tool, call, self._context.copy())
        if run is not None:
            self._started[call_id] = Started(call, run)
            self._unclaimed.add(call_id)

    @abstractmethod
    def _begin(
        self, tool: BaseTool, call: ToolCall, context: Context
    ) -> Future[Any] | asyncio.Task[Any] | None:
        """Run the tool in that context; None where it cannot run from here."""

    def claim(self, call_id: str) -> Started | None:
        """Take a started run over; it is handed out once."""
        if call_id not in self._unclaimed:
            return None
        self._unclaimed.discard(call_id)
        return self._started[call_id]

    def finished(self, call_id: str) -> bool:
        """Whether a call's result is there already, claimed or not."""
        started = self._started.get(call_id)
        return started is not None and started.done

    def cancel_all_but(self, call_ids: Collection[str]) -> None:
        """Cancel what the finished reply does not ask for; no more calls will come."""
        for call_id in self._unclaimed - set(call_ids):
            self._unclaimed.discard(call_id)
            self._started[call_id].cancel()


class ThreadStarter(Starter):
    """For agents that run synchronously: every tool in a thread of its own."""

    _pool: ThreadPoolExecutor | None = None

    def _begin(self, tool: BaseTool, call: ToolCall, context: Context) -> Future[Any]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._limit, thread_name_prefix="cachefriendly-tool")
        return self._pool.submit(context.run, tool.invoke, call, self._config)

    def cancel_all_but(self, call_ids: Collection[str]) -> None:
        super().cancel_all_but(call_ids)
        if self._pool is not None:
            self._pool.shutdown(wait=False)  # what was submitted still runs


class LoopStarter(Starter):
    """For agents on an event loop: every tool is a task of it, as in the tool node."""

    def __init__(self, tools: Mapping[str, BaseTool], config: RunnableConfig) -> None:
        super().__init__(tools, config)
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._room = asyncio.Semaphore(self._limit) if self._limit else None

    def _begin(self, tool: BaseTool, call: ToolCall, context: Context) -> asyncio.Task[Any] | None:
        if threading.get_ident() != self._thread:
            return None  # the model is called from another thread: tasks are not made from there
        task = self._loop.create_task(self._invoke(tool, call), context=context)
        task.add_done_callback(_look_at)
        return task

    async def _invoke(self, tool: BaseTool, call: ToolCall) -> Any:
        if self._room is None:
            return await tool.ainvoke(call, self._config)
        async with self._room:
            return await tool.ainvoke(call, self._config)


def _look_at(task: asyncio.Task[Any]) -> None:
    """An exception that nobody asks for is no warning: the call was not wanted after all."""
    if not task.cancelled():
        task.exception()

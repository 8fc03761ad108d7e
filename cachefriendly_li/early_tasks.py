"""Tools of an agent as tasks of its loop, begun while the model writes, and claimed by call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from llama_index.core.tools import AsyncBaseTool, ToolMetadata, ToolOutput

from cachefriendly.early_start import EarlyRuns, Run, Started, look_at
from cachefriendly.messages import ToolCall

__all__ = ["EarlyTasks", "StandIn"]


class EarlyTasks(EarlyRuns):
    """Runs tools as tasks of the agent's loop; no more at once than the agent itself would."""

    def __init__(self, tools: Mapping[str, AsyncBaseTool], room: asyncio.Semaphore) -> None:
        super().__init__()
        self._tools = tools
        self._room = room

    def _begin(self, call: ToolCall) -> Run | None:
        tool = self._tools.get(call.name)
        if tool is None:
            return None
        task = asyncio.create_task(self._invoke(tool, dict(call.arguments)))
        task.add_done_callback(look_at)
        return task

    async def _invoke(self, tool: AsyncBaseTool, arguments: dict[str, Any]) -> ToolOutput:
        async with self._room:
            return await tool.acall(**arguments)

    def claim_call(self, call: ToolCall) -> Started | None:
        """The run of that call, by its id, or of an equal one where the id was made up later."""
        started = self.claim(self._known_id(call))
        if started is None or _same(started.call, call):
            return started
        started.cancel()
        return None

    def keep_only(self, calls: Iterable[ToolCall]) -> None:
        """Cancel what none of these calls of the finished reply can claim."""
        self.cancel_all_but({self._known_id(call) for call in calls})

    def _known_id(self, call: ToolCall) -> str:
        if call.id in self._started:
            return call.id
        equal = (n for n in self._started if n in self._unclaimed and self._is(n, call))
        return next(equal, "")

    def _is(self, name: str, call: ToolCall) -> bool:
        return _same(self._started[name].call, call)


class StandIn(AsyncBaseTool):
    """Takes a started tool's place for one call, so that errors are handled where they ever are."""

    def __init__(self, tool: AsyncBaseTool, started: Started) -> None:
        self._tool = tool
        self._started: Started | None = started

    @property
    def metadata(self) -> ToolMetadata:
        return self._tool.metadata

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        return self._tool.call(*args, **kwargs)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        started, self._started = self._started, None
        if started is None or started.cancelled:
            return await self._tool.acall(*args, **kwargs)
        output: ToolOutput = await started.aresult()
        return output


def _same(one: ToolCall, other: ToolCall) -> bool:
    return one.name == other.name and one.arguments == other.arguments

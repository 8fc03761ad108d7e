"""Tools that are added to a running conversation: announced with a user message, not at the top.

A template prints its tools near the start of the prompt, so one more tool moves everything behind
it. A tool marked ``late`` is said in the block of the newest user message instead, as an anchor's
value is (see `cachefriendly.prompt.bindings`): the prompt in front of it stays held.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from cachefriendly.messages import Tool
from cachefriendly.openai_forms import tool_to_openai
from cachefriendly.prompt.canonical_tools import canonical_tools
from cachefriendly.request import ChatRequest

__all__ = ["parted", "withdrawn"]

_LABEL = "further tool "
_GONE = "(not available any more)"


def parted(request: ChatRequest) -> tuple[ChatRequest, Mapping[str, str]]:
    """The request with the tools its template prints, and what is announced, by label.

    Where every tool is late all are printed: how to write a call is said with the tools.
    """
    stated = tuple(tool for tool in request.tools if not tool.late)
    if not stated or len(stated) == len(request.tools):
        return request, {}
    late = canonical_tools([tool for tool in request.tools if tool.late])
    return replace(request, tools=stated), {_LABEL + tool.name: _text(tool) for tool in late}


def withdrawn(said: Iterable[str], current: Collection[str]) -> Mapping[str, str]:
    """What has to be said of tools that were announced and are offered no longer."""
    return {name: _GONE for name in said if name.startswith(_LABEL) and name not in current}


def _text(tool: Tool) -> str:
    """As templates print tools: one line of JSON, its keys in the usual order."""
    return json.dumps(tool_to_openai(tool), ensure_ascii=False)

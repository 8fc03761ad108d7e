"""``layout="stable"``: a thread keeps its first system message and tools, changes are bound behind.

Whatever other middlewares write into the system prompt (the time, a memory block, a page of state)
changes it at its start, and everything behind has to be read again. In this layout the thread's
first system message stays, and what differs from it is bound before the newest user message, as
values of anchors (see ``docs/anchors.md``); tools that come later are announced there. The model
reads another prompt than without it: that is why the layout is chosen by name, and
``layout="stock"`` is the way back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypeAlias

from langchain_core.messages import SystemMessage

from cachefriendly.messages import ANCHORS_KEY
from cachefriendly.prefix import common_prefix
from cachefriendly.request import ChatRequest

__all__ = ["Layout", "StableLayout", "StableSystem"]

Layout: TypeAlias = Literal["stock", "stable"]

_LABEL = re.compile(r"[^\d\n]{0,60}[^\W\d_]")
_REMOVED = "(no longer part of the instructions)"


@dataclass(frozen=True, slots=True)
class StableSystem:
    """A thread's first system message, and what of it has changed since.

    Attributes:
        first: its text.
        lines: numbers of lines that changed, while every version had as many lines.
        region: since one had not: the lines ``[start, stop)`` of ``first`` that all changes are in.
    """

    first: str
    lines: frozenset[int] = frozenset()
    region: tuple[int, int] | None = None

    @classmethod
    def from_state(cls, value: Mapping[str, Any]) -> Self:
        region = value.get("region")
        return cls(value["first"], frozenset(value["lines"]), tuple(region) if region else None)

    def to_state(self) -> dict[str, Any]:
        """Plain JSON values, for a checkpoint."""
        region = list(self.region) if self.region else None
        return {"first": self.first, "lines": sorted(self.lines), "region": region}

    def follow(self, text: str) -> tuple[StableSystem, dict[str, str]]:
        """The same with the changes of a new version, and what is bound for it, by label.

        A line that once changed stays bound, also when it is as it was: what was said of it before
        stands in the conversation.
        """
        old, new = self.first.split("\n"), text.split("\n")
        if self.region is None and len(old) == len(new):
            changed = frozenset(n for n in range(len(old)) if old[n] != new[n])
            lines = self.lines | changed
            values = dict(_line_value(n, old[n], new[n]) for n in sorted(lines))
            return replace(self, lines=lines), values
        start, stop = self._region(old, new)
        shown = "\n".join(new[start : len(new) - (len(old) - stop)]).strip()
        following = replace(self, lines=frozenset(), region=(start, stop))
        return following, {_region_label(start, stop): shown or _REMOVED}

    def _region(self, old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
        """The lines of the first version that hold every change so far; it only grows."""
        places = [*((n, n + 1) for n in self.lines), *([self.region] if self.region else [])]
        if old != new:
            start = common_prefix(old, new)
            behind = min(common_prefix(old[::-1], new[::-1]), len(old) - start, len(new) - start)
            places.append((start, len(old) - behind))
        return min(start for start, _ in places), max(stop for _, stop in places)


def _line_value(number: int, old: str, new: str) -> tuple[str, str]:
    """Label and value of a changed line. The words that the first version begins with name it."""
    words = _LABEL.match(old)
    label = words[0] if words else ""
    if len(label) < 2 or label == old:
        return f"line {number + 1} of the instructions", new.strip() or _REMOVED
    return label.strip(), new.removeprefix(label).lstrip(" :=") or _REMOVED


def _region_label(start: int, stop: int) -> str:
    if start == stop:
        return f"added to the instructions after line {start}"
    return f"instead of lines {start + 1} to {stop} of the instructions"


@dataclass(frozen=True, slots=True)
class StableLayout:
    """What a thread in this layout has to remember.

    Attributes:
        system: its first system message; None while it had none.
        tools: names of the tools of its first call, which every prompt states at its start.
    """

    system: StableSystem | None = None
    tools: tuple[str, ...] = ()

    @classmethod
    def from_state(cls, value: Mapping[str, Any]) -> Self:
        system = value.get("system")
        return cls(
            StableSystem.from_state(system) if system else None, tuple(value.get("tools", ()))
        )

    def to_state(self) -> dict[str, Any]:
        """Plain JSON values, for a checkpoint."""
        system = self.system.to_state() if self.system else None
        return {"system": system, "tools": list(self.tools)}

    def follow(
        self, system: SystemMessage | None, tools: Sequence[Any]
    ) -> tuple[SystemMessage | None, StableLayout]:
        """The system message to send, and what is remembered then."""
        first = self.tools or tuple(_name(tool) for tool in tools)
        if system is None:
            return None, StableLayout(self.system, first)
        message, following = _arranged(system, self.system or StableSystem(system.text))
        return message, StableLayout(following, first)

    def asked(self, request: ChatRequest) -> ChatRequest:
        """The request with the tools that were added later marked as such."""
        tools = (replace(tool, late=tool.name not in self.tools) for tool in request.tools)
        return replace(request, tools=tuple(tools))


def _name(tool: Any) -> str:
    """Of a tool, or of the provider's own form of one."""
    if not isinstance(tool, Mapping):
        return str(tool.name)
    function = tool.get("function", tool)
    return str(function.get("name", "")) if isinstance(function, Mapping) else ""


def _arranged(system: SystemMessage, kept: StableSystem) -> tuple[SystemMessage, StableSystem]:
    """A system message in the stable layout, and what is remembered of it."""
    following, values = kept.follow(system.text)
    anchors = {**system.additional_kwargs.get(ANCHORS_KEY, {}), **values}
    extra = {**system.additional_kwargs, **({ANCHORS_KEY: anchors} if anchors else {})}
    update = {"content": kept.first, "additional_kwargs": extra}
    return system.model_copy(update=update), following

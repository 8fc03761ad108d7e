"""What a template prints besides the conversation: system messages, tools, template arguments."""

from __future__ import annotations

from typing import Any, NamedTuple

from cachefriendly.messages import canonical_json
from cachefriendly.prompt.canonical_tools import canonical_tools
from cachefriendly.prompt.digests import digest_of
from cachefriendly.request import ChatRequest

__all__ = ["InputDigests"]


class InputDigests(NamedTuple):
    """One digest for each, so that a loss can name the one that changed."""

    system: bytes
    tools: bytes
    arguments: bytes

    @classmethod
    def of(cls, request: ChatRequest) -> InputDigests:
        tools = canonical_tools(request.tools)
        return cls(
            system=_digest([m.content for m in request.messages if m.role == "system"]),
            tools=_digest([[tool.name, tool.description, tool.parameters] for tool in tools]),
            arguments=_digest(dict(request.template_arguments)),
        )


def _digest(value: Any) -> bytes:
    return digest_of(canonical_json(value).encode("utf-8", "surrogatepass"))

"""A conversation over a prompt builder, as a framework keeps it; no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cachefriendly.messages import Message, Tool
from cachefriendly.prompt import BuiltPrompt, PromptBuilder
from cachefriendly.request import ChatRequest

WEATHER = Tool(
    "get_weather",
    "Weather of a city",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "metric": {"type": "boolean"}},
        "required": ["city"],
    },
)


class Conversation:
    """What a framework does: keeps a message list and sends all of it each time."""

    def __init__(self, builder: PromptBuilder, tools: Sequence[Tool] = (), **request: Any) -> None:
        self.builder = builder
        self.tools = tuple(tools)
        self.messages: list[Message] = []
        self.held: tuple[int, ...] = ()
        self.handle = ""
        self._request = request

    def add(self, role: Any, content: str, **fields: Any) -> None:
        self.messages.append(Message(role, content, **fields))

    def prompt(self) -> BuiltPrompt:
        request = ChatRequest(tuple(self.messages), tools=self.tools, **self._request)
        return self.builder.build(request)

    def reply(self, ids: Sequence[int], parsed: Message, returned: Message | None = None) -> None:
        """One call; ``returned`` is the form in which the framework gives the reply back."""
        built = self.prompt()
        self.handle = self.builder.commit(built, ids, parsed)
        self.held = built.ids + tuple(ids)
        self.messages.append(returned or parsed)

    def new_ids(self) -> tuple[int, ...]:
        """Ids of the next prompt behind everything held; fails if anything held is not kept."""
        built = self.prompt()
        assert built.ids[: len(self.held)] == self.held
        assert built.losses == ()
        return built.ids[len(self.held) :]


def wire(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Plain messages as `apply_chat_template` takes them."""
    return [{"role": message.role, "content": message.content} for message in messages]


def reference_ids(tokenizer: Any, messages: Sequence[Message], **options: Any) -> tuple[int, ...]:
    encoded = tokenizer.apply_chat_template(
        wire(messages), add_generation_prompt=True, return_dict=True, **options
    )
    return tuple(encoded["input_ids"])

"""A tokenizer's chat templates, with and without tools, and requests made ready for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import takewhile
from typing import Any

from cachefriendly.messages import Message
from cachefriendly.prompt.canonical_tools import canonical_tools
from cachefriendly.prompt.disguise import disguise_for
from cachefriendly.prompt.policy import Policy
from cachefriendly.prompt.rendering import PreparedTemplate, Rendering
from cachefriendly.prompt.restore import thoughts_apart
from cachefriendly.prompt.template import template_source
from cachefriendly.prompt.texts import texts_of_request
from cachefriendly.request import ChatRequest

__all__ = ["Templates"]

_ANY_MOMENT = datetime(2000, 1, 1)


class Templates:
    """One template for most tokenizers; some have another one for tools. Immutable.

    Raises at construction:
        TemplateError: the tokenizer has no chat template, or one that does not compile.
    """

    def __init__(self, tokenizer: Any, policy: Policy) -> None:
        self._policy = policy
        plain = template_source(tokenizer, with_tools=False)
        with_tools = template_source(tokenizer, with_tools=True)
        self.plain = PreparedTemplate(tokenizer, plain)
        self.with_tools = self.plain
        if with_tools != plain:
            self.with_tools = PreparedTemplate(tokenizer, with_tools)

    @property
    def sources(self) -> tuple[bytes, bytes]:
        """The text of both, for an identity."""
        plain, with_tools = (
            prepared.template.source.encode("utf-8", "surrogatepass")
            for prepared in (self.plain, self.with_tools)
        )
        return plain, with_tools

    def rendering(
        self,
        request: ChatRequest,
        messages: Sequence[Message],
        moment: datetime,
        numbers: Sequence[int],
    ) -> Rendering:
        """The request disguised, for ``messages`` of it, which it calls ``numbers``.

        Raises:
            RequestError: a text cannot be encoded, or uses all of the characters for disguises.
        """
        prepared = self.with_tools if request.tools else self.plain
        arguments = request.template_arguments
        texts = list(texts_of_request(messages, request.tools, arguments, numbers))
        source = prepared.template.source
        disguise = disguise_for(prepared.controls, texts, source)
        tools = canonical_tools(request.tools) if self._policy.sorts_tools else request.tools
        return Rendering(
            prepared,
            disguise,
            tuple(disguise.tool(tool) for tool in tools),
            disguise.value(arguments),
            moment,
            prepared.seams.sever(texts, [source, *disguise.placeholders.values()]),
        )

    def disguised(self, messages: Sequence[Message], rendering: Rendering) -> list[Message]:
        """Control tokens in disguise, and reasoning where the template looks for it."""
        disguise, features = rendering.disguise, rendering.prepared.features
        if self._policy.restores and features.reasoning:
            think, opens = rendering.prepared.dialect.reasoning, features.opens_reasoning
            messages = thoughts_apart(messages, disguise, think, open_start=opens)
        return [disguise.message(message) for message in messages]

    def plain_length(self, messages: Sequence[Message]) -> int:
        """Tokens of a conversation without tools as the template prints it."""
        return self._length(ChatRequest(()), messages)

    def head_length(self, request: ChatRequest) -> int:
        """Tokens of all but the conversation: system messages at its start, tools, and so on."""
        system = takewhile(lambda message: message.role == "system", request.messages)
        return self._length(request, [*system, Message("user", "")])

    def _length(self, request: ChatRequest, messages: Sequence[Message]) -> int:
        rendering = self.rendering(request, messages, _ANY_MOMENT, range(len(messages)))
        disguised = self.disguised(messages, rendering)
        text = rendering.render(disguised, add_generation_prompt=True)
        reveal = rendering.disguise.reveal if rendering.disguise else None
        return len(rendering.prepared.tokens.encode(text, reveal=reveal))

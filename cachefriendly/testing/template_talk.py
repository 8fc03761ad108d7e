"""One tool conversation of four model calls, as a framework keeps it, for any chat template.

Replies are written the way the template itself writes them in history, so that a reply is what its
model would say; the ids are made up: one per character, never what the tokenizer makes of the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from cachefriendly.messages import Message, Tool, ToolCall
from cachefriendly.openai_forms import tool_to_openai
from cachefriendly.prefix import common_prefix
from cachefriendly.prompt import BuiltPrompt, PromptBuilder
from cachefriendly.prompt.rendering import PreparedTemplate
from cachefriendly.prompt.wire import to_wire
from cachefriendly.request import ChatRequest
from cachefriendly.testing.tokenizer import byte_chars

__all__ = ["MOMENT", "TOOLS", "Renderer", "Step", "Talk", "run_talk"]

MOMENT = datetime(2026, 3, 1, 23, 59)
_OPEN_THOUGHT = re.compile(r"<[\w:]*think[\w:]*>")
# Sampled at the end of a reply with calls, where it is not the close of a plain one.
_STOP = re.compile(r"(<\|call\|>|<\|eom\w*\|>|<\|tool_response>|<\uff5c\w*eos\S*\uff5c>|</s>)\s*$")

TOOLS = (
    Tool(
        "get_weather",
        "Weather of a city",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "name of the city"},
                "metric": {"type": "boolean", "description": "degrees Celsius"},
            },
            "required": ["city"],
        },
    ),
    Tool(
        "multiply",
        "Multiply two numbers",
        {
            "type": "object",
            "properties": {
                "a": {"type": "number", "description": "first factor"},
                "b": {"type": "number", "description": "second factor"},
            },
            "required": ["a", "b"],
        },
    ),
)


@dataclass(frozen=True, slots=True)
class Talk:
    """Which parts of the conversation a template is given."""

    system: bool = True
    tools: bool = True
    reasoning: bool = True

    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def template_arguments(self) -> dict[str, Any]:
        """Reasoning is switched on by whatever name templates have for it."""
        switches = (
            {"enable_thinking": True, "thinking": True, "reasoning_effort": "high"}
            if self.reasoning
            else {}
        )
        return {**switches, **self.arguments}

    def request(
        self, messages: Sequence[Message], *, moment: datetime | None = None
    ) -> ChatRequest:
        tools = TOOLS if self.tools else ()
        arguments = self.template_arguments
        return ChatRequest(
            tuple(messages), tools=tools, template_arguments=arguments, moment=moment
        )

    def turns(self) -> list[tuple[tuple[Message, ...], Message]]:
        """What is new before each of the four model calls, and the reply to it."""
        system = (Message("system", "Be brief and kind."),) if self.system else ()
        question = Message("user", "What is the weather in Ulm, and what is six times seven?")
        weather = ToolCall("get_weather", {"city": "Ulm", "metric": False}, "callulm01")
        product = ToolCall("multiply", {"a": 6, "b": 7}, "callmul02")
        first = Message("assistant", "", (weather,), reasoning="I need the weather first.")
        second = Message("assistant", "", (product,), reasoning="Now the product.")
        sunny = Message("tool", "sun, 12 degrees", tool_call_id="callulm01", name="get_weather")
        result = Message("tool", "42", tool_call_id="callmul02", name="multiply")
        if not self.tools:
            first = replace(first, content="Sun?", tool_calls=())
            second = replace(second, content="Six of them.", tool_calls=())
            sunny, result = Message("user", "It is sun, 12 degrees."), Message("user", "It is 42.")
        turns = [
            ((*system, question), first),
            ((sunny,), second),
            ((result,), Message("assistant", "Sun in Ulm, and 42.", reasoning="Both are known.")),
            (
                (Message("user", "And is it good to walk today?"),),
                Message("assistant", "Yes, it is.", reasoning="Sun is good."),
            ),
        ]
        if self.reasoning:
            return turns
        return [(new, replace(reply, reasoning=None)) for new, reply in turns]


@dataclass(frozen=True, slots=True)
class Step:
    """One model call of the conversation.

    Attributes:
        messages: the conversation with every reply as it was generated.
        sent: the same as the framework sent it.
        built: the prompt.
        held: prompt and generated ids of the call before; empty at the first.
        reply: what the model then wrote.
    """

    messages: tuple[Message, ...]
    sent: tuple[Message, ...]
    built: BuiltPrompt
    held: tuple[int, ...]
    reply: str

    @property
    def kept(self) -> int:
        """How many of the held ids the prompt starts with."""
        return common_prefix(self.held, self.built.ids)


def run_talk(
    builder: PromptBuilder,
    tokenizer: Any,
    talk: Talk,
    *,
    restyled: bool = False,
) -> list[Step]:
    """The four calls.

    ``restyled``: the model spells JSON with other spaces than the template, and the framework sends
    arguments back with their keys in another order.
    """
    steps: list[Step] = []
    sent: list[Message] = []
    messages: list[Message] = []
    held: tuple[int, ...] = ()
    render = Renderer(builder.prepared(with_tools=talk.tools), talk)
    for new, reply in talk.turns():
        sent += new
        messages += new
        built = builder.build(talk.request(sent))
        text = render.reply(messages, reply)
        if restyled:
            text = text.replace('{"', '{ "', 1)
        ids = spelled_ids(tokenizer, text)
        steps.append(Step(tuple(messages), tuple(sent), built, held, text))
        builder.commit(built, ids, reply)
        held = built.ids + tuple(ids)
        messages.append(reply)
        sent.append(_reordered(reply) if restyled else reply)
    return steps


class Renderer:
    """Renders whole conversations as `apply_chat_template` does; knows no recorded replies."""

    def __init__(self, prepared: PreparedTemplate, talk: Talk) -> None:
        self._prepared = prepared
        self._talk = talk
        self._tools = TOOLS if talk.tools else ()

    def __call__(
        self, messages: Sequence[Message], *, prompt: bool = True, moment: datetime | None = None
    ) -> str:
        prepared = self._prepared
        wire = to_wire(messages, self._tools, prepared.features, prepared.dialect)
        native = self._tools if prepared.features.tools else ()
        return prepared.template.render(
            wire,
            tools=[tool_to_openai(tool) for tool in native],
            arguments=self._talk.template_arguments,
            add_generation_prompt=prompt,
            moment=moment or MOMENT,
        )

    def reply(self, messages: Sequence[Message], reply: Message) -> str:
        """What a model says for ``reply``: its turn in history, without header and turn close."""
        prompt = self(messages)
        history = self([*messages, reply], prompt=False)
        seam = self._seam(prompt, history)
        text, opened = self._behind_header(history[seam:], prompt), prompt[seam:]
        plain = self([*messages, Message("assistant", "plainanswer")], prompt=False)
        text = self._without_close(text, plain.partition("plainanswer")[2])
        thought = (reply.reasoning or "").strip()
        if (tag := _OPEN_THOUGHT.search(opened)) and (not thought or thought not in text):
            text = f"{thought}\n{tag.group().replace('<', '</', 1)}\n\n{text}"
        return text

    def _behind_header(self, text: str, prompt: str) -> str:
        """A turn without what its header and the end of the generation prompt have in common."""
        turn = text.lstrip()
        for size in range(min(len(turn), len(prompt)), 0, -1):
            if prompt.endswith(turn[:size]) and self._prepared.controls.find(turn[:size]):
                return turn[size:]
        return text

    def _without_close(self, text: str, close: str) -> str:
        """A model stops at the last control token of its turn, which is not part of its reply."""
        *_, last = [""] + [p for p, i in self._prepared.controls.split(close) if i is not None]
        ends = (close, last + close.rpartition(last)[2] if last else "")
        bare = text.removesuffix(next((end for end in ends if end and text.endswith(end)), ""))
        return bare if bare != text else _STOP.sub("", text)

    def _seam(self, prompt: str, history: str) -> int:
        """Where both part, never inside a control token of either."""
        floor, common = self._prepared.controls.floor, common_prefix(prompt, history)
        return min(floor(prompt, common), floor(history, common))


def spelled_ids(tokenizer: Any, text: str) -> list[int]:
    """One token per byte, and per control token: decodes to ``text``, is not its tokenization.

    A vocabulary that is not one of bytes gets one encoding per character.
    """
    core = tokenizer.backend_tokenizer
    added = {token.content: number for number, token in core.get_added_tokens_decoder().items()}
    characters = byte_chars()
    of_bytes = all(core.token_to_id(character) is not None for character in characters)
    pattern = "|".join(map(re.escape, sorted(added, key=len, reverse=True)))
    ids: list[int] = []
    for piece in re.split(f"({pattern})", text):
        if piece in added:
            ids.append(added[piece])
        elif of_bytes:
            ids += [core.token_to_id(characters[byte]) for byte in piece.encode()]
        else:
            for character in piece:
                ids += core.encode(character, add_special_tokens=False).ids
    return ids


def _reordered(reply: Message) -> Message:
    calls = (
        replace(call, arguments=dict(reversed(list(call.arguments.items()))))
        for call in reply.tool_calls
    )
    return replace(reply, tool_calls=tuple(calls))

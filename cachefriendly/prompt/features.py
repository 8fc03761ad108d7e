"""What a chat template can print, found by rendering small probe conversations once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeAlias

from cachefriendly.errors import TemplateError
from cachefriendly.prompt.template import ChatTemplate

__all__ = ["TemplateFeatures", "probe_features"]

Wire: TypeAlias = dict[str, Any]
_TOOL_NAME, _KEY = "probetool", "probekey"
_SYSTEM: Wire = {"role": "system", "content": "probesystem"}
_USER: Wire = {"role": "user", "content": "probeuser"}
_ANSWER: Wire = {"role": "assistant", "content": "probeanswer"}
_NEXT: Wire = {"role": "user", "content": "probenext"}
_THOUGHT = "probethought"
_RESULT: Wire = {
    "role": "tool", "tool_call_id": "callprobe", "name": _TOOL_NAME, "content": "proberesult",
}  # fmt: skip
_TOOL: Wire = {
    "type": "function",
    "function": {
        "name": _TOOL_NAME,
        "description": "probe",
        "parameters": {"type": "object", "properties": {}},
    },
}


@dataclass(frozen=True, slots=True)
class TemplateFeatures:
    """How a template treats what is not plain user and assistant text.

    Attributes:
        tools: it prints tool schemas.
        calls: it prints an assistant's tool calls, and results under a role of their own.
        arguments_as_text: it wants call arguments as JSON text.
        system: it accepts a system message.
        default_system: text of the system turn it inserts when there is none; None: it does not.
        headers: text between a message of that role and the content of an assistant reply.
        close: text behind an assistant reply, before a user message; "" when it is not known.
        reasoning: it prints an assistant's reasoning, or cuts a think block off its text.
        opens_reasoning: its generation prompt opens a think block and leaves it open.
    """

    tools: bool
    calls: bool
    arguments_as_text: bool
    system: bool
    default_system: str | None
    headers: Mapping[str, str]
    close: str
    reasoning: bool
    opens_reasoning: bool


def probe_features(template: ChatTemplate) -> TemplateFeatures:
    """Render probes; a refused probe means the feature is absent."""
    probe = _Probe(template)
    as_text = not probe.prints_call({_KEY: 1}) and probe.prints_call(f'{{"{_KEY}": 1}}')
    calls = as_text or probe.prints_call({_KEY: 1})
    system = probe.render([_SYSTEM, _USER])
    results = [_USER, _calling(f'{{"{_KEY}": 1}}' if as_text else {_KEY: 1}), _RESULT]
    before = {"user": [_USER], "tool": results if calls else []}
    return TemplateFeatures(
        tools=probe.prints_tools(),
        calls=calls,
        arguments_as_text=as_text,
        system=_SYSTEM["content"] in system,
        default_system=_default_system(probe.render([_USER]), system),
        headers={role: h for role, start in before.items() if (h := probe.header(start))},
        close=probe.close(),
        reasoning=probe.knows_reasoning(),
        opens_reasoning=probe.opens_reasoning(),
    )


class _Probe:
    """Renders probes of one template; a refusal is empty text."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template

    def render(
        self, messages: Sequence[Wire], tools: Sequence[Wire] | None = None, **options: Any
    ) -> str:
        try:
            return self._template.render(messages, tools=tools, **options)
        except TemplateError:
            return ""

    def prints_tools(self) -> bool:
        starts = ([_SYSTEM, _USER], [_USER])
        return any(_TOOL_NAME in self.render(messages, [_TOOL]) for messages in starts)

    def prints_call(self, arguments: Any) -> bool:
        """The call with its arguments as JSON, and the result behind it."""
        text = self.render([_USER, _calling(arguments), _RESULT])
        as_python = f"'{_KEY}'" in text
        return (
            all(part in text for part in (_TOOL_NAME, _KEY, _RESULT["content"])) and not as_python
        )

    def knows_reasoning(self) -> bool:
        fields = {"reasoning_content": _THOUGHT, "thinking": _THOUGHT}
        replies = (_ANSWER, _calling({_KEY: 1}), _calling(f'{{"{_KEY}": 1}}'))
        if any(_THOUGHT in self.render([_USER, {**reply, **fields}]) for reply in replies):
            return True
        inside = {**_ANSWER, "content": f"<think>{_THOUGHT}</think>{_ANSWER['content']}"}
        text = self.render([_USER, inside, _NEXT])
        return _ANSWER["content"] in text and _THOUGHT not in text

    def opens_reasoning(self) -> bool:
        text = self.render([_USER], add_generation_prompt=True)
        return text.rfind("<think>") > text.rfind("</think>")

    def header(self, start: Sequence[Wire]) -> str:
        """Text between the last message of ``start`` and a reply; "" where it is not separable."""
        before = self.render(start) if start else ""
        whole = self.render([*start, _ANSWER, _NEXT])
        answer = whole.find(_ANSWER["content"])
        return whole[len(before) : answer] if before and whole.startswith(before) else ""

    def close(self) -> str:
        """What follows a reply whether or not the conversation goes on."""
        left, right = (
            self.render(messages).partition(_ANSWER["content"])[2]
            for messages in ([_USER, _ANSWER], [_USER, _ANSWER, _NEXT])
        )
        same = takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False))
        return "".join(character for character, _ in same)


def _calling(arguments: Any) -> Wire:
    function = {"name": _TOOL_NAME, "arguments": arguments}
    call = {"id": "callprobe", "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _default_system(without: str, with_system: str) -> str | None:
    """The text between what surrounds a system message, when no message was given."""
    before, found, rest = with_system.partition(_SYSTEM["content"])
    after = rest.partition(_USER["content"])[0]
    inserted = without.partition(_USER["content"])[0]
    fits = inserted.startswith(before) and inserted.endswith(after)
    if not found or not before or not fits or len(inserted) < len(before) + len(after):
        return None
    return inserted[len(before) : len(inserted) - len(after)]

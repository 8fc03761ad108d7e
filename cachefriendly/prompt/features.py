"""What a chat template can print, found by rendering small probe conversations once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from cachefriendly.errors import TemplateError
from cachefriendly.prefix import common_prefix
from cachefriendly.prompt.control import ControlSet
from cachefriendly.prompt.template import ChatTemplate
from cachefriendly.tools.dialect import Dialect

__all__ = ["ReasoningForm", "TemplateFeatures", "probe_features", "scaffolds", "with_reasoning"]

Wire: TypeAlias = dict[str, Any]

ReasoningForm: TypeAlias = Literal["", "fields", "reasoning", "blocks", "cut"]
"""In ``reasoning_content`` and ``thinking``, in ``reasoning``, as a part of the content, or not
printed but cut off the content."""

_FORMS: tuple[ReasoningForm, ...] = ("fields", "reasoning", "blocks")
_TOOL_NAME, _KEY = "probetool", "probekey"
_SYSTEM: Wire = {"role": "system", "content": "probesystem"}
_USER: Wire = {"role": "user", "content": "probeuser"}
_ANSWER: Wire = {"role": "assistant", "content": "probeanswer"}
_NEXT: Wire = {"role": "user", "content": "probenext"}
_THOUGHT = "probethought"
_SWITCHES: tuple[Wire, ...] = ({}, {"enable_thinking": True, "thinking": True})
_QUOTED = re.compile(f"['\"]{_THOUGHT}['\"]")
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
        results: it prints results under a role of their own, whether it prints calls or not.
        arguments_as_text: it wants call arguments as JSON text.
        system: it accepts a system message.
        default_system: text of the system turn it inserts when there is none; None: it does not.
        headers: text between a message of that role and the content of an assistant reply.
        close: text behind an assistant reply, before a user message; "" when it is not known.
        call_close: control tokens behind an assistant's last call, the call's own included.
        reasoning: how it takes an assistant's reasoning; "" when it takes none.
        opens_reasoning: its generation prompt opens a block of reasoning and leaves it open.
    """

    tools: bool
    calls: bool
    results: bool
    arguments_as_text: bool
    system: bool
    default_system: str | None
    headers: Mapping[str, str]
    close: str
    call_close: str
    reasoning: ReasoningForm
    opens_reasoning: bool


def scaffolds(template: ChatTemplate) -> Iterator[str]:
    """Probe conversations as rendered: a template may write control tokens in pieces."""
    calling = _calling({_KEY: 1})
    talks = ([_USER], [_USER, _thinking(_ANSWER), _NEXT], [_USER, _thinking(calling), _RESULT])
    for messages in talks:
        for tools in (None, [_TOOL]):
            for options in _SWITCHES:
                try:
                    yield template.render(
                        messages, tools=tools, arguments=options, add_generation_prompt=True
                    )
                except TemplateError:
                    continue


def probe_features(
    template: ChatTemplate, dialect: Dialect, controls: ControlSet
) -> TemplateFeatures:
    """Render probes; a refused probe means the feature is absent."""
    probe = _Probe(template, dialect, controls)
    as_text = not probe.prints_call({_KEY: 1}) and probe.prints_call(f'{{"{_KEY}": 1}}')
    calls = as_text or probe.prints_call({_KEY: 1})
    system = probe.render([_SYSTEM, _USER])
    calling = _calling(f'{{"{_KEY}": 1}}' if as_text else {_KEY: 1})
    before = {"user": [_USER], "tool": [_USER, calling, _RESULT] if calls else []}
    return TemplateFeatures(
        tools=probe.prints_tools(),
        calls=calls,
        results=calls or probe.prints_result(),
        arguments_as_text=as_text,
        system=_SYSTEM["content"] in system,
        default_system=_default_system(probe.render([_USER]), system),
        headers={role: h for role, start in before.items() if (h := probe.header(start))},
        close=probe.close(),
        call_close=probe.call_close(as_text) if calls else "",
        reasoning=probe.reasoning(),
        opens_reasoning=probe.opens_reasoning(),
    )


def with_reasoning(wire: Wire, reasoning: str, form: ReasoningForm) -> Wire:
    """An assistant message that carries its reasoning in the given form."""
    if form == "reasoning":
        return {**wire, "reasoning": reasoning}
    if form == "blocks":
        parts = [{"type": "thinking", "thinking": reasoning}]
        text = [{"type": "text", "text": wire["content"]}] if wire["content"] else []
        return {**wire, "content": parts + text}
    # gpt-oss templates read `thinking`, all others `reasoning_content`.
    return {**wire, "reasoning_content": reasoning, "thinking": reasoning}


class _Probe:
    """Renders probes of one template; a refusal is empty text."""

    def __init__(self, template: ChatTemplate, dialect: Dialect, controls: ControlSet) -> None:
        self._template = template
        self._dialect = dialect
        self._controls = controls

    def render(
        self, messages: Sequence[Wire], tools: Sequence[Wire] | None = None, **options: Any
    ) -> str:
        """With tools, also where none were asked for but the template cannot do without."""
        for offered in (tools, [_TOOL]):
            try:
                return self._template.render(messages, tools=offered, **options)
            except TemplateError:
                continue
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

    def prints_result(self) -> bool:
        """A result under a role of its own: not as the words of the user, nor as any role's.

        A template that prints whatever role it is given says nothing of what its model knows.
        """
        said = {"role": "assistant", "content": _ANSWER["content"]}
        result, words, any_role = (
            self.render([_USER, said, message])
            for message in (
                _RESULT,
                {"role": "user", "content": _RESULT["content"]},
                {**_RESULT, "role": "proberole"},
            )
        )
        return _RESULT["content"] in result and result not in {
            words,
            any_role.replace("proberole", "tool"),
        }

    def reasoning(self) -> ReasoningForm:
        """The first form in which the template shows reasoning, else whether it cuts it off."""
        replies = (_ANSWER, _calling({_KEY: 1}), _calling(f'{{"{_KEY}": 1}}'))
        for form in _FORMS:
            shown = (with_reasoning(reply, _THOUGHT, form) for reply in replies)
            if any(self._shows_thought(reply) for reply in shown):
                return form
        if (think := self._dialect.reasoning) is None:
            return ""
        inside = f"{think.open}{_THOUGHT}{think.close}{_ANSWER['content']}"
        text = self.render([_USER, {**_ANSWER, "content": inside}, _NEXT])
        return "cut" if _ANSWER["content"] in text and _THOUGHT not in text else ""

    def _shows_thought(self, reply: Wire) -> bool:
        shown = [self.render([_USER, reply], arguments=given) for given in _SWITCHES]
        # In quotes it is a list of parts that was printed as it is.
        return any(_THOUGHT in text and not _QUOTED.search(text) for text in shown)

    def opens_reasoning(self) -> bool:
        return self._dialect.opens_reasoning(self.render([_USER], add_generation_prompt=True))

    def call_close(self, as_text: bool) -> str:
        """What ends a turn with calls, with or without arguments, when the result follows."""
        ends: list[str] = []
        for arguments in ({_KEY: 1}, {}):
            calling = _calling(json.dumps(arguments) if as_text else arguments)
            text = self.render([_USER, calling])
            whole = self.render([_USER, calling, _RESULT])
            kept = self._controls.floor(text, common_prefix(text, whole))
            ends.append(self._controls.ending(text[:kept]))
        first, other = ends
        same = common_prefix(first[::-1], other[::-1])
        start = len(first) - same
        while start < len(first) and self._controls.floor(first, start) != start:
            start += 1
        return first[start:]

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
        return left[: self._controls.floor(left, common_prefix(left, right))]


def _thinking(reply: Wire) -> Wire:
    return with_reasoning(reply, _THOUGHT, "fields")


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

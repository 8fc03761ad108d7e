"""One request made ready to be rendered several times: disguised, with its tools and its clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from cachefriendly.compat import template_literals
from cachefriendly.errors import TemplateError
from cachefriendly.messages import Message, Tool
from cachefriendly.openai_forms import tool_to_openai
from cachefriendly.prompt.control import ControlSet, control_set
from cachefriendly.prompt.disguise import Disguise
from cachefriendly.prompt.features import TemplateFeatures, probe_features, scaffolds
from cachefriendly.prompt.seams import Seams, Severed
from cachefriendly.prompt.template import ChatTemplate
from cachefriendly.prompt.tokens import TextTokenizer
from cachefriendly.prompt.wire import to_wire
from cachefriendly.tools.dialect import Dialect
from cachefriendly.tools.response_choice import dialect_of

__all__ = ["PreparedTemplate", "Rendering"]

_PROBE_TURNS = (
    ("user", " What is 2+2?\n\nUse  spaces, and éè 漢字."),
    ("assistant", "It is 4.\n"),
    ("user", "```python\n    print('hi')\n```"),
)


class PreparedTemplate:
    """What one chat template of a tokenizer needs: compiled, probed, with tokenizer clones."""

    def __init__(self, tokenizer: Any, source: str) -> None:
        self.template = ChatTemplate(tokenizer, source)
        self.dialect: Dialect = dialect_of(tokenizer, source)
        self.controls: ControlSet = control_set(
            tokenizer, source, [*self.dialect.markers, *scaffolds(self.template)]
        )
        self.features: TemplateFeatures = probe_features(self.template, self.dialect, self.controls)
        self.seams = Seams(self.controls, template_literals(source))
        self.tokens = TextTokenizer(tokenizer, self.controls, probes=self._probes())

    def _probes(self) -> Iterator[str]:
        """Rendered texts by which the tokenizer tells whether stretches add up to the whole."""
        messages = [{"role": role, "content": content} for role, content in _PROBE_TURNS]
        for turns in (messages, messages[:1]):
            try:
                yield self.template.render(turns, add_generation_prompt=True)
            except TemplateError:
                continue


@dataclass(frozen=True)
class Rendering:
    """Renders message lists of one request. Messages given to `render` are disguised already."""

    prepared: PreparedTemplate
    disguise: Disguise
    tools: tuple[Tool, ...]
    arguments: Mapping[str, Any]
    moment: datetime
    severed: Severed | None = None

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        prepared = self.prepared
        wire = to_wire(messages, self.tools, prepared.features, prepared.dialect)
        native = self.tools if prepared.features.tools else ()
        return prepared.template.render(
            wire,
            tools=[tool_to_openai(tool) for tool in native],
            arguments=self.arguments,
            add_generation_prompt=add_generation_prompt,
            moment=self.moment,
        )

    def check(self, text: str, messages: Sequence[Message], *, add_generation_prompt: bool) -> None:
        """Refuse ``text``, the rendering of ``messages``, if the template made control tokens of
        pieces: with the pieces severed it must have the same structure.

        Raises:
            ControlTokenError: it has not.
        """
        if (severed := self.severed) is None:
            return
        arguments = {name: severed.value(value) for name, value in self.arguments.items()}
        tools = tuple(severed.tool(tool) for tool in self.tools)
        apart = [severed.message(message) for message in messages]
        other = replace(self, tools=tools, arguments=arguments)
        try:
            structure = other.render(apart, add_generation_prompt=add_generation_prompt)
        except TemplateError:
            structure = ""
        self.prepared.seams.check(text, structure, severed.where)

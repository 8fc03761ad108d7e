"""One request made ready to be rendered several times: disguised, with its tools and its clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cachefriendly.errors import TemplateError
from cachefriendly.messages import Message, Tool
from cachefriendly.prompt.control import ControlSet, control_set
from cachefriendly.prompt.disguise import Disguise
from cachefriendly.prompt.features import TemplateFeatures, probe_features
from cachefriendly.prompt.schema import function_schema
from cachefriendly.prompt.template import ChatTemplate
from cachefriendly.prompt.tokens import TextTokenizer
from cachefriendly.prompt.wire import to_wire
from cachefriendly.tools.dialect import Dialect, dialect_for

__all__ = ["Setting", "Stage"]

_PROBE_TURNS = (
    ("user", " What is 2+2?\n\nUse  spaces, and éè 漢字."),
    ("assistant", "It is 4.\n"),
    ("user", "```python\n    print('hi')\n```"),
)


class Setting:
    """What one chat template of a tokenizer needs: compiled, probed, with tokenizer clones."""

    def __init__(self, tokenizer: Any, source: str) -> None:
        self.template = ChatTemplate(tokenizer, source)
        self.features: TemplateFeatures = probe_features(self.template)
        self.dialect: Dialect = dialect_for(source)
        self.controls: ControlSet = control_set(tokenizer, source, self.dialect.markers)
        self.tokens = TextTokenizer(tokenizer, self.controls)
        self._check_stretches()

    def _check_stretches(self) -> None:
        """Once per template: stretches add up to the whole text, or whole texts are encoded."""
        messages = [{"role": role, "content": content} for role, content in _PROBE_TURNS]
        for turns in (messages, messages[:1]):
            try:
                text = self.template.render(turns, generation_prompt=True)
            except TemplateError:
                continue
            self.tokens.check(text)


@dataclass(frozen=True)
class Stage:
    """Renders message lists of one request. Messages given to `render` are disguised already."""

    setting: Setting
    disguise: Disguise
    tools: tuple[Tool, ...]
    arguments: Mapping[str, Any]
    moment: datetime

    def render(self, messages: Sequence[Message], *, generation_prompt: bool) -> str:
        setting = self.setting
        wire = to_wire(messages, self.tools, setting.features, setting.dialect)
        native = self.tools if setting.features.tools else ()
        return setting.template.render(
            wire,
            tools=[function_schema(tool) for tool in native],
            arguments=self.arguments,
            generation_prompt=generation_prompt,
            moment=self.moment,
        )

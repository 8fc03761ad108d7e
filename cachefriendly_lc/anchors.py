"""`AnchoredPrompt` for LangChain: a system message, alone or inside a `ChatPromptTemplate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.prompts.message import BaseMessagePromptTemplate

from cachefriendly.anchors import AnchoredText
from cachefriendly.messages import ANCHORS_KEY

__all__ = ["AnchoredMessageTemplate", "AnchoredPrompt"]


@dataclass(frozen=True, slots=True)
class AnchoredPrompt(AnchoredText):
    """A system prompt whose volatile values go with the newest user message.

    Example:
        >>> prompt = AnchoredPrompt.from_template("You help [USER_ID_12]. It is [TIME_STAMP_19].")
        >>> create_agent(model, system_prompt=prompt.message(user_id="u-77", time_stamp=now()))
        >>> ChatPromptTemplate.from_messages([prompt.as_template(), ("human", "{question}")])
    """

    def message(self, **values: object) -> SystemMessage:
        """The system message with what the anchors stand for now."""
        return SystemMessage(self.text, additional_kwargs={ANCHORS_KEY: dict(self.bind(**values))})

    def as_template(self) -> AnchoredMessageTemplate:
        """For `ChatPromptTemplate`: its variables are the names of the anchors."""
        return AnchoredMessageTemplate(template=self.text)


class AnchoredMessageTemplate(BaseMessagePromptTemplate):
    """Makes the system message of an anchored prompt from the variables of a chat template."""

    template: str

    @property
    def input_variables(self) -> list[str]:
        return [anchor.name for anchor in self._prompt.anchors]

    def format_messages(self, **kwargs: Any) -> list[BaseMessage]:
        """One system message; of ``kwargs`` it takes the values of its anchors."""
        return [self._prompt.message(**{name: kwargs[name] for name in self.input_variables})]

    def pretty_repr(self, html: bool = False) -> str:
        return self.template

    @property
    def _prompt(self) -> AnchoredPrompt:
        return AnchoredPrompt.from_template(self.template)

"""The chat template: wire-form messages to text, with a frozen clock and errors that say more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2

from cachefriendly.compat import compile_chat_template, special_tokens_map
from cachefriendly.errors import RequestError, TemplateError

__all__ = ["ChatTemplate", "template_source"]

_OURS = ("messages", "tools", "add_generation_prompt", "strftime_now")


def template_source(tokenizer: Any, *, with_tools: bool) -> str:
    """The template `apply_chat_template` would take: some tokenizers have one for tools.

    Raises:
        TemplateError: the tokenizer has no chat template.
    """
    source = getattr(tokenizer, "chat_template", None)
    if isinstance(source, Mapping):
        named = source.get("tool_use") if with_tools else None
        source = named or source.get("default")
    if not source:
        raise TemplateError(
            "this tokenizer has no chat template; set tokenizer.chat_template to the Jinja "
            "template the model was trained with, or use an instruct model (base models have none)"
        )
    return str(source)


class ChatTemplate:
    """One compiled template. Immutable; rendering is thread safe."""

    def __init__(self, tokenizer: Any, source: str) -> None:
        self.source = source
        self._compiled = compile_chat_template(source)
        self._special = special_tokens_map(tokenizer)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        arguments: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = False,
        moment: datetime | None = None,
    ) -> str:
        """The prompt as text, as `apply_chat_template(..., tokenize=False)` gives it.

        ``moment`` is what ``strftime_now`` prints.

        Raises:
            TemplateError: the template refuses these messages; its own words are in the error.
        """
        variables = {"documents": None, **self._special, **(arguments or {})}
        now = moment or datetime.now()
        try:
            return self._compiled.render(
                **variables,
                messages=list(messages),
                tools=list(tools) if tools else None,
                add_generation_prompt=add_generation_prompt,
                strftime_now=now.strftime,
            )
        except jinja2.TemplateError as error:
            raise TemplateError(f"the chat template refuses these messages: {error}") from error
        except Exception as error:  # a template is foreign code and can fail in any way
            kind = type(error).__name__
            raise TemplateError(
                f"the chat template failed on these messages: {kind}: {error}"
            ) from error


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Template arguments are plain data under names that are not the engine's own.

    Raises:
        RequestError: another name or another type.
    """
    for name, value in arguments.items():
        if name in _OURS:
            raise RequestError(
                f"template argument {name!r} is set by the engine; pass messages and tools in the "
                "request and choose the clock with EngineConfig(clock=...)"
            )
        if not _is_plain(value):
            raise RequestError(
                f"template argument {name!r} holds {type(value).__name__}; use plain JSON data"
            )


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, str | int | float)

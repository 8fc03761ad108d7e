"""How transformers compiles chat templates: every quirk the renderer leans on, explained once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import jinja2
import jinja2.nodes
from transformers.utils import chat_template_utils

from cachefriendly.errors import TemplateError

__all__ = ["CompiledTemplate", "compile_chat_template", "special_tokens_map", "template_literals"]


class CompiledTemplate(Protocol):
    """What the renderer needs of a compiled Jinja template; rendering it is thread safe."""

    def render(self, **variables: Any) -> str: ...


def compile_chat_template(source: str) -> CompiledTemplate:
    """Compile with transformers' own sandbox, filters and globals (cached there by source).

    The function is private but has kept its name since 4.39. Rendering its result directly is the
    only way to pass a frozen `strftime_now`: `apply_chat_template` turns arguments into plain data
    from 5.24 on, and a function becomes a string there.
    """
    compiler: Callable[[str], CompiledTemplate] = chat_template_utils._compile_jinja_template
    try:
        return compiler(source)
    except jinja2.TemplateError as error:
        raise TemplateError(f"the chat template does not compile: {error}") from error


@functools.lru_cache(maxsize=64)
def template_literals(source: str) -> str:
    """The text a template writes itself, joined with NUL so that no match spans two literals."""
    compiled: Any = compile_chat_template(source)
    tree = compiled.environment.parse(source)
    literals = [node.data for node in tree.find_all(jinja2.nodes.TemplateData)]
    constants = [node.value for node in tree.find_all(jinja2.nodes.Const)]
    return "\0".join(literals + [value for value in constants if isinstance(value, str)])


def special_tokens_map(tokenizer: Any) -> dict[str, Any]:
    """Variables such as ``bos_token`` that `apply_chat_template` hands to every template."""
    return dict(tokenizer.special_tokens_map)

"""Constructor and call options: standard names, aliases, and a refusal for everything unknown."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from cachefriendly.errors import CacheFriendlyError, ConfigError, RequestError
from cachefriendly.options import (
    ALIASES,
    GENERATION_NAMES,
    check_kinds,
    refuse_unknown,
    standard_names,
)

__all__ = [
    "TRACING_OPTIONS",
    "check_call",
    "check_timeout",
    "constructor_options",
    "generation_layers",
    "without_output",
]

_GENERATION: Final = GENERATION_NAMES | {"do_sample"}
_CALL_OPTIONS: Final = _GENERATION | {
    "generation_kwargs",
    "template_arguments",
    "cache_namespace",
    "model",
    "timeout",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    # How a call is made, not what is generated: core and agents pass these to every model.
    "stream",
    "max_retries",
    "skip_prompt",
    "stream_options",
    "stream_usage",
    "strict",
}
_CALL_KINDS: Final[Mapping[str, type]] = {
    "cache_namespace": str,
    "generation_kwargs": Mapping,
    "model": str,
    "parallel_tool_calls": bool,
    "template_arguments": Mapping,
    "tools": Iterable,
}

TRACING_OPTIONS: Final = frozenset({"ls_structured_output_format", "structured_output_format"})
"""Bound by structured output and taken out by core before a call."""

_ALIASES: Final[Mapping[str, str]] = {
    **ALIASES,
    "model_id": "model",
    "model_name": "model",
    "pipeline_kwargs": "generation_kwargs",
    "request_timeout": "timeout",
}
# Settings of a remote client that generic code passes to any chat model; nothing local to set.
_REMOTE_ONLY: Final = frozenset(
    {
        "api_key",
        "api_version",
        "base_url",
        "default_headers",
        "huggingfacehub_api_token",
        "organization",
        "stream_usage",
    }
)
# Arguments of ChatHuggingFace that local generation has no counterpart for, and what they may be.
_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "n": (None, 1),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "logprobs": (None, False),
    "top_logprobs": (None,),
    "logit_bias": (None,),
}
# How a pipeline formats what it returns; here it is always the reply alone.
_OUTPUT_ONLY: Final = frozenset({"return_full_text", "skip_prompt"})
_HINT: Final = "fields of transformers' GenerationConfig go into generation_kwargs={...}"


def constructor_options(options: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """Constructor arguments under their field names.

    Raises:
        ConfigError: an argument is unknown, was given under two names, or has no effect here.
    """
    renamed = _named(options, ConfigError)
    if "do_sample" in renamed:  # no field: `temperature` says the same
        extra = {"do_sample": renamed.pop("do_sample")}
        renamed["generation_kwargs"] = {**extra, **(renamed.get("generation_kwargs") or {})}
    refuse_unknown(set(renamed) - _REMOTE_ONLY, fields, error=ConfigError, hint=_HINT)
    return {name: value for name, value in renamed.items() if name in fields}


def check_call(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of one call under their standard names.

    Raises:
        RequestError: an option is unknown, was given under two names, or is of another kind.
    """
    renamed = _named(options, RequestError)
    refuse_unknown(renamed, _CALL_OPTIONS, hint=_HINT)
    check_kinds(renamed, _CALL_KINDS)
    return renamed


def _named(options: Mapping[str, Any], error: type[CacheFriendlyError]) -> dict[str, Any]:
    """Options under their standard names, without those that are set to nothing."""
    renamed = standard_names(options, _ALIASES, error=error)
    for name, harmless in _NEUTRAL.items():
        if name in renamed and renamed.pop(name) not in harmless:
            raise error(f"{name}={options[name]!r} is not supported; leave it out")
    if isinstance(renamed.get("generation_kwargs"), Mapping):
        renamed["generation_kwargs"] = without_output(renamed["generation_kwargs"])
    return renamed


def without_output(options: Mapping[str, Any]) -> dict[str, Any]:
    """A pipeline's options without those that only format what it returns."""
    return {name: value for name, value in options.items() if name not in _OUTPUT_ONLY}


def generation_layers(options: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """``generation_kwargs`` among options, then the generation parameters with a name."""
    named = {name: value for name, value in options.items() if name in _GENERATION}
    return options.get("generation_kwargs") or {}, named


def check_timeout(seconds: Any) -> float | None:
    """A positive number of seconds, or None."""
    if seconds is None:
        return None
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or math.isnan(seconds) or seconds <= 0:
        raise RequestError(f"timeout={seconds!r} is not usable; give seconds above 0 or None")
    return None if math.isinf(seconds) else float(seconds)

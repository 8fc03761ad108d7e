"""Constructor and call options: standard names, aliases, and a refusal for everything unknown."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from cachefriendly.config import Sampling
from cachefriendly.errors import CacheFriendlyError, ConfigError, RequestError

__all__ = [
    "CALL_OPTIONS",
    "GENERATION",
    "TRACING_OPTIONS",
    "check_call",
    "check_timeout",
    "constructor_options",
    "sampling",
]

GENERATION = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "seed",
    "stop",
)
"""Generation parameters with a standard name, in the constructor, in `bind` and per call."""

CALL_OPTIONS = frozenset(
    {
        *GENERATION,
        "stop_token_ids",
        "generation_kwargs",
        "template_arguments",
        "cache_namespace",
        "model",
        "timeout",
        "tools",
        "tool_choice",
        "response_format",
        # How a call is made, not what is generated: core and agents pass these to every model.
        "stream",
        "max_retries",
        "parallel_tool_calls",
        "strict",
    }
)

TRACING_OPTIONS = frozenset({"ls_structured_output_format", "structured_output_format"})
"""Bound by structured output and taken out by core before a call."""

_ALIASES: Mapping[str, str] = {
    "model_id": "model",
    "model_name": "model",
    "max_new_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "request_timeout": "timeout",
    "stop_sequences": "stop",
}
# Settings of a remote client that generic code passes to any chat model; nothing local to set.
_REMOTE_ONLY = frozenset(
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
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "logprobs": (None, False),
    "top_logprobs": (None,),
    "logit_bias": (None,),
}


def constructor_options(options: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    """Constructor arguments under their field names.

    Raises:
        ConfigError: an argument is unknown, was given under two names, or has no effect here.
    """
    renamed = _renamed(options, ConfigError)
    for name, harmless in _NEUTRAL.items():
        if name in renamed and renamed.pop(name) not in harmless:
            raise ConfigError(f"{name}={options[name]!r} is not supported; leave it out")
    unknown = [name for name in renamed if name not in fields and name not in _REMOTE_ONLY]
    if unknown:
        raise ConfigError(_unknown_message(unknown[0], fields))
    return {name: value for name, value in renamed.items() if name in fields}


def check_call(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of one call under their standard names; `RequestError` names an unknown one."""
    renamed = _renamed(options, RequestError)
    unknown = sorted(set(renamed) - CALL_OPTIONS)
    if unknown:
        raise RequestError(_unknown_message(unknown[0], CALL_OPTIONS))
    return renamed


def check_timeout(seconds: Any) -> float | None:
    """A positive number of seconds, or None."""
    if seconds is None:
        return None
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or math.isnan(seconds) or seconds <= 0:
        raise RequestError(f"timeout={seconds!r} is not usable; give seconds above 0 or None")
    return None if math.isinf(seconds) else float(seconds)


def sampling(*layers: Mapping[str, Any]) -> Sampling:
    """Merge layers of generation parameters, the last one wins; None means not set.

    ``generation_kwargs`` of a layer may hold any field of transformers' `GenerationConfig`.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        loose = {name: value for name, value in layer.items() if name in _SAMPLING_NAMES}
        merged.update(_given({**_renamed(layer.get("generation_kwargs") or {}, RequestError)}))
        merged.update(_given(loose))
    extra = {name: merged.pop(name) for name in list(merged) if name not in _SAMPLING_NAMES}
    stop = merged.pop("stop", ())
    token_ids = merged.pop("stop_token_ids", ())
    return Sampling.from_options(
        **merged,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        stop_token_ids=tuple(token_ids),
        extra=extra,
    )


_SAMPLING_NAMES = frozenset({*GENERATION, "stop_token_ids"})


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _renamed(options: Mapping[str, Any], error: type[CacheFriendlyError]) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for name, value in options.items():
        standard = _ALIASES.get(name, name)
        if standard in renamed:
            raise error(f"{name!r} is another name of {standard!r}; give one of them")
        renamed[standard] = value
    return renamed


def _unknown_message(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, [*known, *_ALIASES], n=1)
    if close:
        return f"unknown option {name!r}; did you mean {close[0]!r}?"
    return (
        f"unknown option {name!r}; known: {', '.join(sorted(known))}; fields of transformers' "
        "GenerationConfig go into generation_kwargs={...}"
    )

"""Options of an LLM and of one call, under LlamaIndex's and transformers' names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from cachefriendly.config import Sampling
from cachefriendly.errors import RequestError

__all__ = ["CALL_OPTIONS", "sampling", "split_call"]

CALL_OPTIONS: Final = frozenset(
    {
        "cache_namespace",
        "response_schema",
        "session_id",
        "template_arguments",
        "tool_choice",
        "tool_required",
        "tools",
    }
)
"""What a call may say besides generation parameters."""

_KINDS: Final[Mapping[str, type]] = {
    "cache_namespace": str,
    "generate_kwargs": Mapping,
    "response_schema": Mapping,
    "session_id": str,
    "template_arguments": Mapping,
    "tools": Iterable,
}
# How LlamaIndex's own code is to treat the reply, not what is generated.
_IGNORED: Final = frozenset({"allow_parallel_tool_calls", "formatted", "verbose"})
_ALIASES: Final[Mapping[str, str]] = {
    "max_new_tokens": "max_tokens",
    "num_output": "max_tokens",
    "stop_strings": "stop",
    "stop_sequences": "stop",
    "eos_token_id": "stop_token_ids",
    "stopping_ids": "stop_token_ids",
}
_SAMPLING_NAMES: Final = frozenset(field.name for field in fields(Sampling)) - {"extra"}


def split_call(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the keyword arguments of one call into call options and generation parameters.

    Generation parameters go under their own names or in ``generate_kwargs={...}``.

    Raises:
        RequestError: an option is of another kind than it must be.
    """
    for name, kind in _KINDS.items():
        value = options.get(name)
        if value is not None and not isinstance(value, kind):
            raise RequestError(f"{name}={value!r} is not usable; give a {kind.__name__.lower()}")
    call = {name: value for name, value in options.items() if name in CALL_OPTIONS}
    generation = dict(options.get("generate_kwargs") or {})
    skip = CALL_OPTIONS | _IGNORED | {"generate_kwargs"}
    generation.update({name: value for name, value in options.items() if name not in skip})
    return call, generation


def sampling(*layers: Mapping[str, Any]) -> Sampling:
    """Merge layers of generation parameters; the last one wins, None means not set.

    ``do_sample=False`` is greedy, as in transformers. A name that is no parameter of `Sampling`
    goes to ``extra``, where the engine refuses what `GenerationConfig` does not know.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        merged.update(_standard(layer))
    known = {name: merged.pop(name) for name in list(merged) if name in _SAMPLING_NAMES}
    for name, kind in (("stop", str), ("stop_token_ids", int)):
        if name in known:
            known[name] = _as_tuple(name, known[name], kind)
    return Sampling.from_options(**known, extra=merged)


def _standard(layer: Mapping[str, Any]) -> dict[str, Any]:
    standard: dict[str, Any] = {}
    for name, value in layer.items():
        target = _ALIASES.get(name, name)
        if value is None:
            continue
        if target in standard:
            raise RequestError(f"{name!r} is another name of {target!r}; give one of them")
        standard[target] = value
    return _with_do_sample(standard)


def _with_do_sample(options: dict[str, Any]) -> dict[str, Any]:
    sample = options.get("do_sample")
    if sample is None:
        return options
    if not isinstance(sample, bool):
        raise RequestError(f"do_sample={sample!r} is not usable; give True or False")
    if not sample or "temperature" in options:
        del options["do_sample"]
    if not sample:
        options["temperature"] = 0.0
    return options


def _as_tuple(name: str, value: Any, kind: type) -> tuple[Any, ...]:
    values = (value,) if isinstance(value, kind) else value
    if not isinstance(values, list | tuple) or not all(isinstance(item, kind) for item in values):
        raise RequestError(f"{name}={value!r} is not usable; give a list of {kind.__name__}")
    return tuple(values)

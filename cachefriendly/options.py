"""Loose options under every name they come by: checked, and merged into `Sampling`."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from cachefriendly.config import Sampling
from cachefriendly.errors import CacheFriendlyError, RequestError

__all__ = [
    "ALIASES",
    "GENERATION_NAMES",
    "check_kinds",
    "first_given",
    "refuse_unknown",
    "sampling_from",
    "standard_names",
]

GENERATION_NAMES: Final = frozenset(field.name for field in fields(Sampling)) - {"extra"}
"""The standard names of generation parameters."""

ALIASES: Final[Mapping[str, str]] = {
    "max_new_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "num_output": "max_tokens",
    "stop_strings": "stop",
    "stop_sequences": "stop",
    "eos_token_id": "stop_token_ids",
    "stopping_ids": "stop_token_ids",
}
"""What transformers, LangChain and LlamaIndex call them."""


def sampling_from(*layers: Mapping[str, Any]) -> Sampling:
    """Merge layers of generation parameters; the last one wins, None means not set.

    ``temperature=0`` and ``do_sample=False`` are greedy, whichever a layer says. A name that is no
    parameter of `Sampling` goes to ``extra``, where the engine refuses what `GenerationConfig`
    does not know.

    Raises:
        RequestError: a value is unusable, or a layer gives one parameter under two names.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        given = {name: v for name, v in standard_names(layer).items() if v is not None}
        _settle_sampling(merged, given)
        merged |= given
    sample = merged.pop("do_sample", None)
    if sample is False:
        merged["temperature"] = 0.0
    elif sample and "temperature" not in merged:
        merged["do_sample"] = True  # at the temperature of the model's own generation config
    known = {name: merged.pop(name) for name in list(merged) if name in GENERATION_NAMES}
    for name, kind in (("stop", str), ("stop_token_ids", int)):
        if name in known:
            known[name] = _as_tuple(name, known[name], kind)
    return Sampling(**known, extra=merged)


def standard_names(
    options: Mapping[str, Any],
    aliases: Mapping[str, str] = ALIASES,
    *,
    error: type[CacheFriendlyError] = RequestError,
) -> dict[str, Any]:
    """The options with aliases resolved; ``error`` when two names of one parameter are set."""
    renamed: dict[str, Any] = {}
    for name, value in options.items():
        standard = aliases.get(name, name)
        if value is not None and renamed.get(standard) is not None:
            raise error(f"{name!r} is another name of {standard!r}; give one of them")
        if value is not None or standard not in renamed:
            renamed[standard] = value
    return renamed


def refuse_unknown(
    options: Iterable[str],
    known: Collection[str],
    *,
    error: type[CacheFriendlyError] = RequestError,
    hint: str = "",
) -> None:
    """Raise ``error`` for the first option that is not known, with the name it may be meant for."""
    unknown = sorted(set(options) - set(known))
    if not unknown:
        return
    close = difflib.get_close_matches(unknown[0], [*known, *ALIASES], n=1)
    if close:
        raise error(f"unknown option {unknown[0]!r}; did you mean {close[0]!r}?")
    names = ", ".join(sorted(known))
    raise error(f"unknown option {unknown[0]!r}; known: {names}" + (f"; {hint}" if hint else ""))


def check_kinds(options: Mapping[str, Any], kinds: Mapping[str, type]) -> None:
    """`RequestError` for the first option that is set to a value of another kind."""
    for name, kind in kinds.items():
        value = options.get(name)
        if value is not None and not isinstance(value, kind):
            raise RequestError(f"{name}={value!r} is not usable; give a {kind.__name__.lower()}")


def first_given(*values: Any) -> Any:
    """The first value that is not None: an empty string or mapping is an answer, too."""
    return next((value for value in values if value is not None), None)


def _settle_sampling(merged: dict[str, Any], given: Mapping[str, Any]) -> None:
    """``do_sample`` and ``temperature`` overrule each other: keep what ``given`` leaves valid."""
    sample = given.get("do_sample")
    if sample is not None and not isinstance(sample, bool):
        raise RequestError(f"do_sample={sample!r} is not usable; give True or False")
    if sample is None and "temperature" in given:
        merged.pop("do_sample", None)
    if sample and "temperature" not in given and merged.get("temperature") == 0:
        del merged["temperature"]


def _as_tuple(name: str, value: Any, kind: type) -> tuple[Any, ...]:
    values = (value,) if isinstance(value, kind) else value
    if not isinstance(values, list | tuple) or not all(isinstance(item, kind) for item in values):
        raise RequestError(f"{name}={value!r} is not usable; give a list of {kind.__name__}")
    return tuple(values)

"""Engine options and sampling settings: frozen, validated, unknown names refused."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias

from cachefriendly.errors import ConfigError, RequestError

__all__ = [
    "Clock",
    "EngineConfig",
    "HistoryPolicy",
    "OverflowPolicy",
    "RunnerName",
    "Sampling",
]

HistoryPolicy: TypeAlias = Literal["template", "exact", "append"]
OverflowPolicy: TypeAlias = Literal["refuse", "drop_oldest", "sink_window"]
RunnerName: TypeAlias = Literal["auto", "packed", "fallback"]
Clock: TypeAlias = Literal["session", "day", "live"]


def _refuse_unknown(cls: type[Any], options: Mapping[str, Any], error: type[ValueError]) -> None:
    known = sorted(f.name for f in dataclasses.fields(cls))
    for name in sorted(set(options).difference(known)):
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
        raise error(f"unknown option {name!r}; {hint}")


def _check_number(
    name: str, value: Any, *, low: float, high: float = math.inf, error: type[ValueError]
) -> None:
    """Numbers only (a bool is not one), finite, inside [low, high]."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not low <= value <= high:
        limit = f"at least {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
        raise error(f"{name}={value!r} is not usable; it must be a number {limit}")


def _check_count(name: str, value: Any, *, low: int, error: type[ValueError]) -> None:
    """Whole numbers only."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise error(f"{name}={value!r} is not usable; it must be a whole number of at least {low}")


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name}={value!r} is unknown; use one of {', '.join(choices)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Options of an `Engine`.

    Attributes:
        reuse: ``False`` forwards every prompt whole: the fair baseline, same code, same output.
        history: how earlier turns are put into the prompt; see docs/history.md.
        kv_bytes: budget for held keys and values on the device, in physical bytes.
        max_batch_tokens: new tokens per forward over all rows; longer prefills are chunked.
        max_rows: rows that run in one forward.
        default_max_tokens: new tokens when neither the call nor the model's generation config says.
        context_window: tokens per sequence; None takes the model's ``max_position_embeddings``.
        overflow: what to do with a history longer than the context window; see docs/overflow.md.
        clock: what ``strftime_now`` in a template sees: frozen per conversation, per day, or live.
        runner: which runner forwards the tokens: chosen at load, or one by force.
        threads: torch intra-op threads while the engine runs; None leaves torch's setting.
        check_model: run the shrunken-copy check at load (about a second).

    Raises:
        ConfigError: an option is unknown or out of range.
    """

    reuse: bool = True
    history: HistoryPolicy = "template"
    kv_bytes: int = 4 * 1024**3
    max_batch_tokens: int = 1024
    max_rows: int = 32
    default_max_tokens: int = 512
    context_window: int | None = None
    overflow: OverflowPolicy = "refuse"
    clock: Clock = "session"
    runner: RunnerName = "auto"
    threads: int | None = None
    check_model: bool = True

    def __new__(cls, *_: Any, **options: Any) -> Self:
        """Refuse unknown names before ``__init__`` does, which would not say what was meant."""
        _refuse_unknown(cls, options, ConfigError)
        return object.__new__(cls)

    @classmethod
    def from_options(cls, **options: Any) -> EngineConfig:
        """Build from loose keyword options; an unknown name raises `ConfigError`."""
        return cls(**options)

    def __post_init__(self) -> None:
        _check_choice("history", self.history, ("template", "exact", "append"))
        _check_choice("overflow", self.overflow, ("refuse", "drop_oldest", "sink_window"))
        _check_choice("clock", self.clock, ("session", "day", "live"))
        _check_choice("runner", self.runner, ("auto", "packed", "fallback"))
        for name in ("kv_bytes", "max_batch_tokens", "max_rows", "default_max_tokens"):
            _check_count(name, getattr(self, name), low=1, error=ConfigError)
        for name in ("context_window", "threads"):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name), low=1, error=ConfigError)
        for name in ("reuse", "check_model"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name}={getattr(self, name)!r} must be True or False")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Sampling settings of one call, with transformers' `GenerationConfig` semantics.

    None means: what the model's own generation config says. ``temperature=0`` is greedy;
    a positive temperature samples. ``extra`` takes any further `GenerationConfig` field.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __new__(cls, *_: Any, **options: Any) -> Self:
        """Refuse unknown names before ``__init__`` does, which would not say what was meant."""
        _refuse_unknown(cls, options, RequestError)
        return object.__new__(cls)

    @classmethod
    def from_options(cls, **options: Any) -> Sampling:
        """Build from loose keyword options; an unknown name raises `RequestError`."""
        return cls(**options)

    def __post_init__(self) -> None:
        for name, least in (("max_tokens", 1), ("top_k", 0), ("seed", 0)):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name), low=least, error=RequestError)
        if self.seed is not None and self.seed >= 2**63:
            raise RequestError(f"seed={self.seed} is not usable; it must be below 2**63")
        limits = (
            ("temperature", 0.0, math.inf),
            ("top_p", 0.0, 1.0),
            ("min_p", 0.0, 1.0),
            ("repetition_penalty", 1e-6, math.inf),
        )
        for name, low, high in limits:
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name), low=low, high=high, error=RequestError)
        stops, ids = self.stop, self.stop_token_ids
        if not isinstance(stops, tuple) or not all(isinstance(s, str) and s for s in stops):
            raise RequestError(f"stop={stops!r} must be a tuple of non-empty strings")
        if not isinstance(ids, tuple) or not all(isinstance(i, int) and i >= 0 for i in ids):
            raise RequestError(f"stop_token_ids={ids!r} must be a tuple of token ids")

"""The runner's interface: ids in, ids out, nothing that a process boundary cannot carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from cachefriendly.config import Sampling

__all__ = ["GenerateRequest", "GrammarSpec", "Maker", "RowDone", "RowEvent", "RowTokens"]


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """A grammar as text, so that it crosses a process boundary.

    ``lark`` is an llguidance lark grammar. ``what`` names its origin in errors (a tool, a schema).
    The lark refers to the texts in ``markers`` as ``marker_0``, ``marker_1``: the matcher makes
    each the added token of that text where the vocabulary has one, else the literal text.
    ``endings`` are texts (markers in them) that lead out of free text or of a list of calls: who
    must end the reply within its length tries them first.
    """

    lark: str
    what: str = "grammar"
    markers: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One row: prompt ids and how to continue them. ``sampling.max_tokens`` is a number here.

    ``prefill_only``: the prompt is forwarded and kept, nothing is generated.
    ``snapshots_at``: lengths of the prompt, ascending, behind which a later one is likely to part
    from it. A model whose state cannot be cut back is kept exactly there.
    """

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    namespace: str = ""
    grammar: GrammarSpec | None = None
    prefill_only: bool = False
    snapshots_at: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.sampling.max_tokens is None:
            raise ValueError("a GenerateRequest needs sampling.max_tokens; the Engine resolves it")

    @property
    def max_tokens(self) -> int:
        return self.sampling.max_tokens or 0


@dataclass(frozen=True, slots=True)
class Maker:
    """What makes a row's keys: how often weights, and runner, had changed before its first one.

    Keys of another maker are gone.
    """

    weights: int = 0
    runner: int = 0


@dataclass(frozen=True, slots=True)
class RowTokens:
    """New ids of a row, in order. A sampled stop token is not among them."""

    ids: tuple[int, ...]
    maker: Maker = Maker()


@dataclass(frozen=True, slots=True)
class RowDone:
    """A row's end.

    ``reason``: ``"stop"`` (stop token or grammar complete), ``"stop_string"``, ``"length"``.
    ``output_ids`` are all generated ids, cut before a stop string, without the stop token;
    ``stop_text`` is text behind the last kept id that still precedes the stop string.
    ``common_tokens``: the longest held sequence with the same beginning; more than
    ``reused_tokens`` where a state that cannot be cut back was held beyond the common part only.
    ``other_regime_tokens``: of the prompt, what was held with keys of another length; all of it
    where keys serve one length only. ``regime_tokens`` were forwarded again because the row grew
    into another rope regime. ``coupled``: tokens of one forward influence each other in this
    model, so that nothing could be reused exactly.
    """

    reason: Literal["stop", "stop_string", "length"]
    output_ids: tuple[int, ...]
    sampled_tokens: int
    reused_tokens: int
    prefilled_tokens: int
    forwarded_tokens: int
    ttft_s: float
    total_s: float
    stop_text: str = ""
    common_tokens: int = 0
    other_regime_tokens: int = 0
    regime_tokens: int = 0
    coupled: bool = False
    maker: Maker = Maker()


RowEvent: TypeAlias = RowTokens | RowDone

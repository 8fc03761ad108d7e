"""The runner's interface: ids in, ids out, nothing that a process boundary cannot carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from cachefriendly.config import Sampling
from cachefriendly.messages import Message, Tool, ToolChoice

__all__ = ["ChatRequest", "GenerateRequest", "GrammarSpec", "RowDone", "RowEvent", "RowTokens"]


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """A grammar as text, so that it crosses a process boundary.

    ``lark`` is an llguidance lark grammar. ``what`` names its origin in errors (a tool, a schema).
    The lark refers to the texts in ``markers`` as ``marker_0``, ``marker_1``: the matcher makes
    each the added token of that text where the vocabulary has one, else the literal text.
    """

    lark: str
    what: str = "grammar"
    markers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One call of a chat model, in the project's own values; adapters build it.

    ``response_schema`` constrains the whole answer to JSON of that schema. ``template_arguments``
    are passed to the chat template (``enable_thinking`` and the like) and belong to the identity
    of the prompt. ``session`` is an affinity hint, never a key of the cache.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    response_schema: Mapping[str, Any] | None = None
    sampling: Sampling = field(default_factory=Sampling)
    namespace: str = ""
    session: str | None = None
    template_arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One row: prompt ids and how to continue them. ``sampling.max_tokens`` is resolved (not None).

    ``max_tokens == 0`` is expressed by ``prefill_only``: the prompt is forwarded and kept.
    """

    prompt_ids: tuple[int, ...]
    sampling: Sampling
    namespace: str = ""
    grammar: GrammarSpec | None = None
    prefill_only: bool = False


@dataclass(frozen=True, slots=True)
class RowTokens:
    """New ids of a row, in order. A sampled stop token is not among them."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RowDone:
    """A row's end.

    ``reason``: ``"stop"`` (stop token or grammar complete), ``"stop_string"``, ``"length"``.
    ``output_ids`` are all generated ids, cut before a stop string, without the stop token;
    ``stop_text`` is text behind the last kept id that still precedes the stop string.
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
    evicted: bool = False


RowEvent: TypeAlias = RowTokens | RowDone

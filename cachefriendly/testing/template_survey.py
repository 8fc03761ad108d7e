"""What a chat template does to a kept prefix, measured on a tool conversation of four calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, get_args

from cachefriendly.config import HistoryPolicy
from cachefriendly.errors import CacheFriendlyError
from cachefriendly.prompt import PromptBuilder
from cachefriendly.testing.template_talk import MOMENT, Renderer, Step, Talk, run_talk

__all__ = ["POLICIES", "Finding", "fitting_talk", "survey_template"]

POLICIES: tuple[HistoryPolicy, ...] = get_args(HistoryPolicy)

DROPPED = "reasoning of earlier replies is dropped"
UNREPEATED = "the generation prompt is not repeated in history"
MOVED = "earlier turns are printed otherwise"


@dataclass(frozen=True, slots=True)
class Finding:
    """One template.

    Attributes:
        dialect: how its calls are read.
        control_tokens: how many control tokens stand between two turns; 0: plain text.
        left_out: parts of the conversation the template does not take.
        kept: per policy, of each call after the first: ids kept of those held.
        rewritten: why ids are lost under ``template``; "" for a stable template.
        first_rewritten: number of the first message that is rewritten; None: no reply is.
        prints_time: it prints the date or the time.
        error: why it takes no conversation at all.
    """

    name: str
    dialect: str = ""
    control_tokens: int = 0
    left_out: tuple[str, ...] = ()
    kept: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    rewritten: str = ""
    first_rewritten: int | None = None
    prints_time: bool = False
    error: str = ""

    @property
    def stable(self) -> bool:
        return not self.rewritten and not self.error

    def share(self, policy: str) -> float:
        """Kept over held ids, all calls together."""
        pairs = self.kept.get(policy, ())
        return sum(kept for kept, _ in pairs) / max(1, sum(held for _, held in pairs))

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "stable": self.stable}


def fitting_talk(builder: PromptBuilder, arguments: Mapping[str, Any] | None = None) -> Talk:
    """The conversation with every part that the template takes; tools in words if need be."""
    features = builder.prepared(with_tools=True).features
    return Talk(
        system=features.system, reasoning=bool(features.reasoning), arguments=arguments or {}
    )


def survey_template(
    name: str, tokenizer: Any, *, arguments: Mapping[str, Any] | None = None
) -> Finding:
    """Run the conversation under every policy; a refusal of the template is in ``error``."""
    kept: dict[str, tuple[tuple[int, int], ...]] = {}
    finding = Finding(name)
    try:
        for policy in POLICIES:
            builder = PromptBuilder(tokenizer, policy=policy, now=lambda: MOMENT)
            talk = fitting_talk(builder, arguments)
            steps = run_talk(builder, tokenizer, talk, restyled=True)
            kept[policy] = tuple((step.kept, len(step.held)) for step in steps[1:])
            if policy == "template":
                finding = _described(name, builder, talk, steps)
    except CacheFriendlyError as error:
        return replace(finding, error=str(error))
    return replace(finding, kept=kept)


def _described(name: str, builder: PromptBuilder, talk: Talk, steps: Sequence[Step]) -> Finding:
    prepared = builder.prepared(with_tools=talk.tools)
    features = prepared.features
    absent = {
        "system": features.system,
        "tools": features.tools,
        "calls": features.calls,
        "reasoning": bool(features.reasoning),
    }
    render = Renderer(prepared, talk)
    why, where = _rewritten(render, steps)
    return Finding(
        name,
        dialect=prepared.dialect.name,
        control_tokens=_between_turns(render, steps, prepared.controls.structure),
        left_out=tuple(part for part, taken in absent.items() if not taken),
        rewritten=why,
        first_rewritten=where,
        prints_time="strftime_now" in prepared.template.source,
    )


def _between_turns(
    render: Renderer, steps: Sequence[Step], structure: Callable[[str], Sequence[str]]
) -> int:
    """Control tokens between the last question and the answer before it."""
    text = render(steps[-1].messages)
    answer, question = steps[-1].messages[-2].content, steps[-1].messages[-1].content
    behind = text.rpartition(answer)[2]
    return len(structure(behind.partition(question)[0]))


def _rewritten(render: Renderer, steps: Sequence[Step]) -> tuple[str, int | None]:
    """Why and where the first ids are lost."""
    for before, step in pairwise(steps):
        if step.kept == len(step.held):
            continue
        loss = next((x for x in step.built.losses if x.message_index is not None), None)
        index = loss.message_index if loss else None
        thought = step.messages[index].reasoning if index is not None else None
        if loss is not None and thought and thought not in loss.after:
            return DROPPED, index
        history = render(before.messages, prompt=False)
        moved = not render(step.messages).startswith(history)
        return (MOVED if moved else UNREPEATED), index
    return "", None

"""Why a prompt could not start with everything the previous call of the conversation left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from cachefriendly.events import Loss, MissReason
from cachefriendly.prefix import common_prefix
from cachefriendly.prompt.built import Circumstances
from cachefriendly.prompt.compose import Rewrite
from cachefriendly.prompt.departure import Departure, excerpts
from cachefriendly.prompt.inputs import InputDigests
from cachefriendly.prompt.overflow import CutMoved
from cachefriendly.prompt.record import Record
from cachefriendly.prompt.volatile import volatile_value

__all__ = ["Comparison", "compare_nearest", "find_losses"]

_INPUTS = (
    (MissReason.SYSTEM_CHANGED, "system", "send the same system message in every call"),
    (MissReason.TOOLS_CHANGED, "tools", "offer the same tools in every call of a conversation"),
    (MissReason.ARGUMENTS_CHANGED, "template_arguments", "keep them equal within a conversation"),
    (MissReason.ARGUMENTS_CHANGED, "clock", "use clock='session' to freeze the time it prints"),
)
_FIX_REWRITE = "use history='append' to keep replies as they were generated"
_EXCERPT_IDS = 20


@dataclass(frozen=True, slots=True)
class Comparison:
    """A prompt held against the ids of a known call; the first ``kept`` are equal."""

    record: Record
    held: tuple[int, ...]
    prompt: tuple[int, ...]
    kept: int

    @property
    def lost(self) -> int:
        return len(self.held) - self.kept


def compare(record: Record, prompt: tuple[int, ...]) -> Comparison:
    held = tuple(record.ids())
    return Comparison(record, held, prompt, common_prefix(held, prompt))


def compare_nearest(
    newest: Record, others: Sequence[Record], inputs: InputDigests, prompt: tuple[int, ...]
) -> Comparison:
    """Against the newest call, or against the agent's own where several share a conversation.

    An agent's calls have its system message, tools and arguments. One of ``others``, the newest
    first, that has those of this call is the nearer one if the prompt keeps more of it.
    """
    compared = compare(newest, prompt)
    if newest.inputs == inputs:
        return compared
    own = next((record for record in others if record.inputs == inputs), None)
    nearer = compare(own, prompt) if own else compared
    return nearer if nearer.kept > compared.kept else compared


def find_losses(
    compared: Comparison,
    departure: Departure | CutMoved | None,
    rewrites: Sequence[Rewrite],
    now: Circumstances,
    decode: Callable[[Sequence[int]], str],
) -> tuple[Loss, ...]:
    """Every reason that applies; the first carries the tokens, the others none."""
    if not compared.lost:
        return ()
    losses = [
        *_input_losses(compared, now, decode),
        *([departure.loss(compared.kept)] if departure else []),
        *_rewrite_losses(rewrites, compared.kept),
    ]
    first, *others = losses or [_unexplained(compared, decode)]
    return replace(first, tokens_lost=compared.lost), *others


def _input_losses(
    compared: Comparison, now: Circumstances, decode: Callable[[Sequence[int]], str]
) -> list[Loss]:
    previous, kept = compared.record, compared.kept
    before, after = _where_they_part(compared, decode)
    changed = [old != new for old, new in zip(previous.inputs, now.inputs, strict=True)]
    changed.append(now.prints_time and previous.moment != now.moment)
    losses = [
        Loss(reason, 0, kept, field=field, before=before, after=after, fix=fix)
        for reason, field, fix in compress(_INPUTS, changed)
    ]
    if losses and losses[0].reason is MissReason.SYSTEM_CHANGED:
        losses[:1] = _system_losses(compared, now, losses[0])
    return losses


def _system_losses(compared: Comparison, now: Circumstances, changed: Loss) -> list[Loss]:
    """A volatile value, where the system messages first differ in one, and whatever else changed.

    Messages that came or went are no volatile value.
    """
    old = [link.message.content for link in compared.record.conversation() if not link.counts]
    new = [(i, link.message.content) for i, link in enumerate(now.links) if not link.counts]
    differing = [(i, a, b) for a, (i, b) in zip(old, new, strict=False) if a != b]
    if len(old) != len(new) or not differing:
        return [changed]
    index, before, after = differing[0]
    value = volatile_value(before, after)
    if value is None:
        return [changed]
    loss = replace(
        changed,
        reason=MissReason.VOLATILE_FIELD,
        message_index=index,
        before=value.before,
        after=value.after,
        fix=f"leave the {value.kind} out of the system message, or bind it late (AnchoredPrompt)",
    )
    return [loss] if value.alone and len(differing) == 1 else [loss, changed]


def _rewrite_losses(rewrites: Sequence[Rewrite], kept: int) -> list[Loss]:
    """Only rewrites behind what was kept: an earlier one was in the previous prompt already."""
    losses = []
    for rewrite in rewrites:
        if rewrite.record.stop > kept:
            before, after = excerpts(rewrite.record.output_text, rewrite.shown)
            reason, index = MissReason.TEMPLATE_REWROTE_HISTORY, rewrite.message_index
            losses.append(Loss(reason, 0, kept, index, None, before, after, _FIX_REWRITE))
    return losses


def _unexplained(compared: Comparison, decode: Callable[[Sequence[int]], str]) -> Loss:
    """Everything was sent as before: then the template prints it differently."""
    before, after = _where_they_part(compared, decode)
    reason = MissReason.TEMPLATE_REWROTE_HISTORY
    return Loss(reason, 0, compared.kept, before=before, after=after, fix=_FIX_REWRITE)


def _where_they_part(
    compared: Comparison, decode: Callable[[Sequence[int]], str]
) -> tuple[str, str]:
    """Text of both prompts from the first differing token on."""
    kept = compared.kept
    before, after = (
        decode(ids[kept : kept + _EXCERPT_IDS]) for ids in (compared.held, compared.prompt)
    )
    return before, after

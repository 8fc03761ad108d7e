"""Why a prompt could not start with everything the previous call of the conversation left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import compress

from cachefriendly.events import Loss, MissReason
from cachefriendly.messages import Message
from cachefriendly.prefix import common_prefix
from cachefriendly.prompt.compose import Rewrite
from cachefriendly.prompt.transcript import Recognition, Record

__all__ = ["Circumstances", "find_losses"]

_INPUTS = (
    (MissReason.SYSTEM_CHANGED, "system", "keep volatile values out of the system message"),
    (MissReason.TOOLS_CHANGED, "tools", "offer the same tools in every call of a conversation"),
    (MissReason.ARGUMENTS_CHANGED, "template_arguments", "keep them equal within a conversation"),
    (MissReason.ARGUMENTS_CHANGED, "clock", "use clock='session' to freeze the time it prints"),
)
_FIX_REWRITE = "use history='append' to keep replies as they were generated"
_FIX_EDIT = "send replies back unchanged"
_EXCERPT = 200
_EXCERPT_IDS = 20


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a prompt was built from, as far as it can explain a loss."""

    messages: Sequence[Message]
    inputs: Sequence[bytes]
    moment: datetime
    prints_time: bool
    decode: Callable[[Sequence[int]], str]


def find_losses(
    prompt: Sequence[int],
    rewrites: Sequence[Rewrite],
    found: Recognition,
    now: Circumstances,
) -> tuple[Loss, ...]:
    """Every reason that applies; the first carries the tokens, the others none."""
    previous = _previous(found)
    if previous is None:
        return ()
    held = previous.ids()
    kept = common_prefix(held, prompt)
    if kept == len(held):
        return ()
    lost = len(held) - kept
    losses = [
        *_input_losses(previous, now, kept),
        *_edit_losses(found, now.messages, kept),
        *_rewrite_losses(rewrites, kept),
    ]
    if not losses:
        before, after = (now.decode(ids[kept : kept + _EXCERPT_IDS]) for ids in (held, prompt))
        reason = MissReason.TEMPLATE_REWROTE_HISTORY
        losses.append(Loss(reason, 0, kept, before=before, after=after, fix=_FIX_REWRITE))
    return tuple(loss if number else _with_tokens(loss, lost) for number, loss in enumerate(losses))


def _previous(found: Recognition) -> Record | None:
    candidates = [*found.edited.values(), *([found.latest] if found.latest else [])]
    return max(candidates, key=lambda record: record.stop, default=None)


def _input_losses(previous: Record, now: Circumstances, kept: int) -> list[Loss]:
    changed = [old != new for old, new in zip(previous.inputs, now.inputs, strict=True)]
    changed.append(now.prints_time and previous.moment != now.moment)
    return [
        Loss(reason, 0, kept, field=field, fix=fix)
        for reason, field, fix in compress(_INPUTS, changed)
    ]


def _edit_losses(found: Recognition, messages: Sequence[Message], kept: int) -> list[Loss]:
    return [
        Loss(
            MissReason.MESSAGE_EDITED,
            0,
            kept,
            message_index=index,
            field="content",
            before=record.reply.content[:_EXCERPT],
            after=messages[index].content[:_EXCERPT],
            fix=_FIX_EDIT,
        )
        for index, record in found.edited.items()
    ]


def _rewrite_losses(rewrites: Sequence[Rewrite], kept: int) -> list[Loss]:
    """Only rewrites behind what was kept: an earlier one was in the previous prompt already."""
    return [
        Loss(
            rewrite.reason,
            0,
            kept,
            message_index=rewrite.message_index,
            before=rewrite.record.output_text[:_EXCERPT],
            after=rewrite.shown[:_EXCERPT],
            fix=_FIX_REWRITE,
        )
        for rewrite in rewrites
        if rewrite.record.stop > kept
    ]


def _with_tokens(loss: Loss, lost: int) -> Loss:
    return replace(loss, tokens_lost=lost)

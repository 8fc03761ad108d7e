"""Why known tokens were forwarded again: what the prompt could not keep, and what was not held."""

from __future__ import annotations

from cachefriendly.events import Loss, MissReason
from cachefriendly.prompt.built import BuiltPrompt
from cachefriendly.rows import RowDone

__all__ = ["losses_of"]


def losses_of(built: BuiltPrompt, done: RowDone, *, reuse: bool) -> tuple[Loss, ...]:
    """The prompt's own losses, then those of the kept keys.

    After a generation the last chosen token has no keys yet, so one token less than was known is
    no loss.
    """
    if not reuse:
        return (Loss(MissReason.REUSE_OFF, 0, 0, fix="EngineConfig(reuse=True)"),)
    origin = built.provenance
    if origin is None or origin.parent is None:
        return built.losses if done.reused_tokens else (*built.losses, _FIRST)
    known = origin.shared - 1
    lost = known - done.reused_tokens
    if lost <= 0:
        return built.losses
    held = min(known, max(done.common_tokens, done.reused_tokens))
    losses = list(built.losses)
    if held > done.reused_tokens:
        losses.append(
            Loss(
                MissReason.NOT_CROPPABLE,
                tokens_lost=held - done.reused_tokens,
                first_differing_token=done.reused_tokens,
                fix="this model's state is kept at the ends of messages only; go on from one",
            )
        )
    if known > held:
        losses.append(
            Loss(
                MissReason.EVICTED,
                tokens_lost=known - held,
                first_differing_token=held,
                fix="raise kv_bytes, keep fewer conversations at once, or call clear() less",
            )
        )
    return tuple(losses)


_FIRST = Loss(MissReason.FIRST_CALL, 0, 0)

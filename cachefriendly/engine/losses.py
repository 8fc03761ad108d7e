"""Why known tokens were forwarded again: what the prompt could not keep, and what was not held."""

from __future__ import annotations

from cachefriendly.events import Loss, MissReason
from cachefriendly.prompt.built import BuiltPrompt
from cachefriendly.rows import RowDone

__all__ = ["losses_of"]


def losses_of(
    built: BuiltPrompt, done: RowDone, *, reuse: bool, same_weights: bool = True
) -> tuple[Loss, ...]:
    """The prompt's own losses, then those of the kept keys.

    After a generation the last chosen token has no keys yet, so one token less than was known is
    no loss.
    """
    if not reuse:
        return (Loss(MissReason.REUSE_OFF, 0, 0, fix="EngineConfig(reuse=True)"),)
    if done.coupled:
        fix = "scale the quantized layers' activations per token, not per tensor"
        return (Loss(MissReason.REUSE_OFF, 0, 0, fix=fix),)
    origin = built.provenance
    if origin is None or origin.parent is None:
        first = () if done.reused_tokens else (_FIRST,)
        return (*built.losses, *first, *_regime(done, 0, done.reused_tokens))
    known = origin.shared - 1
    held = min(known, max(done.common_tokens, done.reused_tokens))
    other = max(0, min(known, done.other_regime_tokens) - held)
    losses = [*built.losses, *_regime(done, other, held)]
    if known <= done.reused_tokens:
        return tuple(losses)
    if held > done.reused_tokens:
        losses.append(
            Loss(
                MissReason.NOT_CROPPABLE,
                tokens_lost=held - done.reused_tokens,
                first_differing_token=done.reused_tokens,
                fix="this model's state is kept at the ends of messages only; go on from one",
            )
        )
    held += other
    if known > held:
        reason, fix = _GONE if same_weights else _OTHER_WEIGHTS
        losses.append(Loss(reason, known - held, first_differing_token=held, fix=fix))
    return tuple(losses)


def _regime(done: RowDone, other: int, first: int) -> tuple[Loss, ...]:
    """Keys that were held for another length of the sequence, before this call and during it."""
    lost = other + done.regime_tokens
    if not lost:
        return ()
    fix = "the model's keys depend on the length: stay on one side of its switch"
    return (Loss(MissReason.ROPE_REGIME_CHANGED, lost, first if other else 0, fix=fix),)


_FIRST = Loss(MissReason.FIRST_CALL, 0, 0)
_GONE = (
    MissReason.EVICTED,
    "raise kv_bytes, keep fewer conversations at once, or call clear() less",
)
_OTHER_WEIGHTS = (
    MissReason.OTHER_FINGERPRINT,
    "the model's weights or adapters changed since; change them between conversations",
)

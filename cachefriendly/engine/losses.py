"""Why known tokens were forwarded again: what the prompt could not keep, and what was not held."""

from __future__ import annotations

from collections.abc import Iterator

from cachefriendly.events import Loss, MissReason
from cachefriendly.prompt.built import BuiltPrompt
from cachefriendly.rows import Maker, RowDone

__all__ = ["losses_of"]


def losses_of(
    built: BuiltPrompt, done: RowDone, *, reuse: bool, made_by: Maker | None
) -> tuple[Loss, ...]:
    """The prompt's own losses, then those of the kept keys.

    Args:
        made_by: whatever made the keys of the call that the prompt goes on from; None where this
            engine never ran that call.
    """
    if not reuse:
        return (Loss(MissReason.REUSE_OFF, 0, 0, fix="EngineConfig(reuse=True)"),)
    if done.coupled:
        fix = "scale the quantized layers' activations per token, not per tensor"
        return (Loss(MissReason.REUSE_OFF, 0, 0, fix=fix),)
    origin = built.provenance
    if origin.parent is None:
        first = () if done.reused_tokens else (Loss(MissReason.FIRST_CALL, 0, 0),)
        return (*built.losses, *first, *_regime(done, 0, done.reused_tokens))
    # After a generation the last chosen token has no keys yet: one less than known is no loss.
    return (*built.losses, *_keys_lost(origin.shared - 1, done, made_by))


def _keys_lost(known: int, done: RowDone, made_by: Maker | None) -> Iterator[Loss]:
    """What was not reused of the first ``known`` tokens::

    [0, reused)       reused
    [reused, held)    held, but no state stood at their end
    [held, other)     held with keys of another rope regime
    [other, known)    not held
    """
    reused = done.reused_tokens
    held = min(known, max(done.common_tokens, reused))
    other = max(held, min(known, done.other_regime_tokens))
    yield from _regime(done, other - held, held)
    if held > reused:
        fix = "this model's state is kept at the ends of messages only; go on from one"
        yield Loss(MissReason.NOT_CROPPABLE, held - reused, reused, fix=fix)
    if known > other:
        reason, fix = _why_not_held(made_by, done.maker)
        yield Loss(reason, known - other, other, fix=fix)


def _regime(done: RowDone, other: int, first: int) -> tuple[Loss, ...]:
    """Keys that were held for another length of the sequence, before this call and during it."""
    lost = other + done.regime_tokens
    if not lost:
        return ()
    fix = "the model's keys depend on the length: stay on one side of its switch"
    return (Loss(MissReason.ROPE_REGIME_CHANGED, lost, first if other else 0, fix=fix),)


def _why_not_held(made_by: Maker | None, now: Maker) -> tuple[MissReason, str]:
    if made_by is None:
        return (
            MissReason.COMPUTED_ELSEWHERE,
            "another process computed them; it happens once after a conversation moved here",
        )
    if made_by.weights != now.weights:
        return (
            MissReason.OTHER_FINGERPRINT,
            "the model's weights or adapters changed since; change them between conversations",
        )
    if made_by.runner != now.runner:
        return (
            MissReason.COMPUTED_ELSEWHERE,
            "the packed runner computed them before the engine left it; see "
            "engine.stats().core.runner_reason",
        )
    return (
        MissReason.EVICTED,
        "raise kv_bytes, keep fewer conversations at once, or call clear() less",
    )

"""Where the next prompt of a conversation is likely to part from this one.

Templates rewrite what follows the newest message: reasoning is dropped, an empty block appears.
A model whose state cannot be cut back has to be kept in front of that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from cachefriendly.prompt.record import Record

__all__ = ["likely_partings"]


def likely_partings(
    ids: Sequence[int],
    generation_prompt: Sequence[int],
    controls: Collection[int],
    parent: Record | None,
    shared: int,
) -> tuple[int, ...]:
    """Lengths of ``ids``, ascending: the end of the history, and the end of its first block.

    Also the start of the newest message, once a prompt parted from ``parent``'s before the end
    of that one's history (after ``shared`` tokens): its template marks the newest message.

    Args:
        generation_prompt: ids that ``ids`` end with; empty when nobody knows where it begins.
        controls: ids of control tokens.
    """
    prompt = len(generation_prompt)
    if not prompt or len(ids) <= prompt:
        return (len(ids) - 1,) if len(ids) > 1 else ()
    merged = tuple(ids[-prompt:]) != tuple(generation_prompt)
    end = max(len(ids) - prompt - 2 * merged, 1)
    if merged or ids[end] not in controls:
        return (end,)
    # The control token that opens this turn opened those before it as well.
    found = {end, _first(ids, ids[end], range(1, end))}
    if parent is not None and shared < parent.prompt_stop - prompt:
        found.add(_first(ids, ids[end], range(end - 1, 0, -1)))
    return tuple(sorted(found - {0}))


def _first(ids: Sequence[int], wanted: int, places: Iterable[int]) -> int:
    return next((at for at in places if ids[at] == wanted), 0)

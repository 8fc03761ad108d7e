"""Work of a store on its file, in a thread beside an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

__all__ = ["in_thread"]

_T = TypeVar("_T")


async def in_thread(work: Callable[[], _T]) -> _T:
    """What ``work`` returns. A caller who is cancelled goes on when it has ended: a thread cannot
    be stopped, and what it wrote later would come after whatever the caller takes back."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise

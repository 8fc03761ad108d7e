"""Kept states of the fallback runner: exact at the lengths where they were kept, and there only.

A prefix tree node holds the keys and values of its own tokens, so a snapshot per turn costs its
new tokens and one recurrent state. A model without any other state is reusable at every length.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

from cachefriendly.compat_transformers import out_of_memory
from cachefriendly.kv.cache_state import cut, growing, joined, stateless, without
from cachefriendly.kv.extent import Ledger
from cachefriendly.kv.fallback_sequence import FallbackSequence
from cachefriendly.rows import GenerateRequest
from cachefriendly.store.contract import CacheStats, KeepPlan, Opened
from cachefriendly.store.run import Run, Snapshot
from cachefriendly.store.tree import Lease, Match, Node, PrefixTree
from cachefriendly.store.trees import TreesBySpace

__all__ = ["SnapshotStore"]


class SnapshotStore(TreesBySpace[Run]):
    """Opens sequences on the longest kept state, evicts states that were not used for longest.

    Not thread safe: the engine thread owns it.
    """

    def __init__(self, budget: int, *, reuse: bool = True) -> None:
        super().__init__()
        self.ledger = Ledger()
        self._budget = budget
        self._reuse = reuse
        self._bare: Any = None  # what every state is without its tokens, where that is all of it
        self._evictions = 0
        self._evicted_tokens = 0

    def plan(self, request: GenerateRequest) -> KeepPlan:
        """Keep what the request names; unnamed, all that a repetition of the prompt could use."""
        prompt = len(request.prompt_ids)
        if not self._reuse:
            return KeepPlan()
        if self._bare is not None:
            return KeepPlan(at=(prompt,))
        named = tuple(at for at in sorted(set(request.snapshots_at)) if 0 < at <= prompt)
        if not named and not request.prefill_only:  # a prefill is kept at its end
            named = (max(prompt - 1, 1),)
        return KeepPlan(at=named, anywhere=False)

    def open(self, ids: Sequence[int], space: str = "") -> Opened[FallbackSequence]:
        """A sequence on the longest usable kept prefix of ``ids``, at most ``len(ids) - 1``."""
        tree = self._trees.get(space) if self._reuse else None
        if tree is None:
            return self._nothing(0)
        match = tree.match(ids[:-1])
        usable = self._usable(match)
        if usable is None:
            return self._nothing(match.length)
        tree.touch(usable)
        usable.nodes[-1].value.used = next(self._clock)
        sequence = self._nothing(match.length).sequence
        try:
            sequence = self._started(usable)
            lease = tree.lease(usable)  # copies too, where it parts a run
        except Exception as error:
            sequence.close()
            if not out_of_memory(error):
                raise
            self.clear()
            return self._nothing(match.length)
        return Opened(sequence, lease, usable.length, match.length)

    def keep(self, sequence: FallbackSequence, ids: Sequence[int], space: str = "") -> None:
        """Hold the state behind the first ``sequence.length`` of ``ids``."""
        length = sequence.length
        if not self._reuse or length == 0:
            return
        tree = self._tree(space)
        parts = growing(sequence.state, length)
        whole = Run(parts, length, None, self.ledger, own=False)
        kept = tree.insert(tuple(ids[:length]), whole).nodes[-1].value
        whole.release()
        kept.used = next(self._clock)
        if stateless(sequence.state, length):
            self._bare = self._bare or without(sequence.state, parts)
        elif kept.snapshot is None:
            kept.put(Snapshot(without(sequence.state, parts), self.ledger))

    def make_room(self, wanted: int = 0) -> int:
        """Evict the states not used for longest until ``wanted`` more bytes fit."""
        target = self._budget - wanted
        before = self.ledger.bytes
        if before <= target:
            return 0
        heap = [(self._age(n), id(n), n, tree) for tree, n in self._nodes() if self._evictable(n)]
        heapq.heapify(heap)
        while heap and self.ledger.bytes > target:
            _, _, node, tree = heapq.heappop(heap)
            if not self._evictable(node):
                continue  # a row runs on it, and what was built on it is gone by now
            parent = self._evict(tree, node)
            if parent is not None and self._bare is not None and self._evictable(parent):
                heapq.heappush(heap, (self._age(parent), id(parent), parent, tree))
            self._drop_if_empty(tree)
        return before - self.ledger.bytes

    def stats(self) -> CacheStats:
        nodes = [node for _, node in self._nodes()]
        return CacheStats(
            bytes=self.ledger.bytes,
            budget=self._budget,
            extents=0,
            tokens=sum(tree.tokens for tree in self._trees.values()),
            nodes=len(nodes),
            evictions=self._evictions,
            evicted_tokens=self._evicted_tokens,
            states=sum(node.value.snapshot is not None for node in nodes),
        )

    def _nothing(self, common: int) -> Opened[FallbackSequence]:
        return Opened(FallbackSequence(self.ledger), Lease(None), reused=0, common=common)

    def _usable(self, match: Match[Run]) -> Match[Run] | None:
        """The part of a match that a sequence can start on."""
        if self._bare is not None:
            return match if match.length else None
        length, best = 0, None
        for index, node in enumerate(match.nodes):
            length += len(node.ids)
            if length <= match.length and node.value.snapshot is not None:
                best = Match(match.nodes[: index + 1], len(node.ids), length)
        return best

    def _started(self, match: Match[Run]) -> FallbackSequence:
        runs = [node.value.parts for node in match.nodes[:-1]]
        last = match.nodes[-1].value
        runs.append(cut(last.parts, 0, match.partial))
        bare = self._bare if last.snapshot is None else last.snapshot.bare
        return FallbackSequence(self.ledger, joined(bare, runs), match.length)

    def _nodes(self) -> Iterator[tuple[PrefixTree[Run], Node[Run]]]:
        for tree in self._trees.values():
            for node in tree.nodes():
                yield tree, node

    def _evictable(self, node: Node[Run]) -> bool:
        """Leaves that nobody runs on; of inner nodes the snapshot, which nothing is built on."""
        if node.is_leaf:
            return not node.leases
        return node.value.snapshot is not None

    def _age(self, node: Node[Run]) -> int:
        return node.last_used if self._bare is not None else node.value.used

    def _evict(self, tree: PrefixTree[Run], node: Node[Run]) -> Node[Run] | None:
        """Remove a leaf, and what only led to it; of an inner node its snapshot alone."""
        self._evictions += 1
        if not node.is_leaf:
            node.value.drop_snapshot()
            return None
        self._evicted_tokens += len(node.ids)
        parent = tree.evict(node)
        while parent is not None and self._useless(parent):
            self._evicted_tokens += len(parent.ids)
            parent = tree.evict(parent)
        return parent

    def _useless(self, node: Node[Run]) -> bool:
        """A leaf that no sequence can start on."""
        free = node.is_leaf and not node.leases
        return free and node.value.snapshot is None and self._bare is None

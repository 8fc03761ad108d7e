"""The kept keys and values of an engine: prefix trees under one byte budget."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from cachefriendly.compat_transformers import out_of_memory
from cachefriendly.kv.extent import Ledger, Piece
from cachefriendly.kv.sequence import Segment
from cachefriendly.kv.sequence import Sequence as KVSequence
from cachefriendly.rows import GenerateRequest
from cachefriendly.store.contract import CacheStats, KeepPlan, Opened
from cachefriendly.store.tree import Lease, Match, Node, PrefixTree
from cachefriendly.store.trees import TreesBySpace

__all__ = ["KVCacheManager"]

# Below this share of an extent the kept tokens are copied out, so that the rest can be freed.
COPY_OUT_BELOW = 0.5


class KVCacheManager(TreesBySpace[Segment]):
    """Opens sequences on the longest held prefix, keeps finished ones, evicts the least recent.

    Prefixes are separated by ``space`` (namespace and whatever else changes the keys' meaning).
    Not thread safe: the engine thread owns it; `Engine` posts other callers' requests to it.
    """

    def __init__(self, budget: int, *, reuse: bool = True) -> None:
        super().__init__()
        self.ledger = Ledger()
        self._budget = budget
        self._reuse = reuse
        self._evictions = 0
        self._evicted_tokens = 0

    def plan(self, request: GenerateRequest) -> KeepPlan:
        """A whole prompt is certain: others may share it while its row still generates."""
        return KeepPlan(at=(len(request.prompt_ids),) if self._reuse else ())

    def open(self, ids: Sequence[int], space: str = "") -> Opened[KVSequence]:
        """A sequence on the longest held prefix of ``ids``; nothing is copied.

        At most ``len(ids) - 1`` tokens are taken over: one must be forwarded to get logits.
        """
        tree = self._trees.get(space) if self._reuse else None
        if tree is None:
            return Opened(KVSequence(self.ledger), Lease(None), reused=0, common=0)
        match = tree.match(ids[:-1])
        tree.touch(match)
        sequence = KVSequence(self.ledger, _pieces(match))
        return Opened(sequence, tree.lease(match), sequence.length, sequence.length)

    def keep(self, sequence: KVSequence, ids: Sequence[int], space: str = "") -> None:
        """Hold what a sequence forwarded: the first ``sequence.length`` of ``ids``."""
        if not self._reuse or sequence.length == 0:
            return
        held = tuple(ids[: sequence.length])
        whole = sequence.segment(0, sequence.length)
        self._tree(space).insert(held, whole)
        whole.release()

    def make_room(self, wanted: int = 0) -> int:
        """Evict least recently used leaves until ``wanted`` more bytes fit; returns bytes freed."""
        target = self._budget - wanted
        before = self.ledger.bytes
        if before <= target:
            return 0
        heap = [
            (leaf.last_used, id(leaf), leaf, tree)
            for tree in self._trees.values()
            for leaf in tree.leaves()
            if not leaf.leases
        ]
        heapq.heapify(heap)
        while heap and self.ledger.bytes > target:
            _, _, leaf, tree = heapq.heappop(heap)
            parent = self._evict(tree, leaf)
            if parent is not None and parent.is_leaf and not parent.leases:
                heapq.heappush(heap, (parent.last_used, id(parent), parent, tree))
            self._drop_if_empty(tree)
        return before - self.ledger.bytes

    def stats(self) -> CacheStats:
        trees = self._trees.values()
        return CacheStats(
            bytes=self.ledger.bytes,
            budget=self._budget,
            extents=self.ledger.extents,
            tokens=sum(tree.tokens for tree in trees),
            nodes=sum(1 for tree in trees for _ in tree.nodes()),
            evictions=self._evictions,
            evicted_tokens=self._evicted_tokens,
        )

    def _evict(self, tree: PrefixTree[Segment], leaf: Node[Segment]) -> Node[Segment] | None:
        self._evictions += 1
        self._evicted_tokens += len(leaf.ids)
        parent = tree.evict(leaf)
        if parent is not None and parent.value.kept_share() < COPY_OUT_BELOW:
            self._copy_out(parent)
        return parent

    def _copy_out(self, node: Node[Segment]) -> None:
        """Where there is no memory for a copy, the node keeps its extent until it is evicted."""
        old = node.value
        try:
            node.value = old.compacted(self.ledger)
        except Exception as error:
            if not out_of_memory(error):
                raise
            return
        old.release()


def _pieces(match: Match[Segment]) -> list[Piece]:
    """The matched pieces; neighbours in one extent are joined, so that the tip stays appendable."""
    pieces: list[Piece] = []
    for node in match.nodes:
        last = node is match.nodes[-1]
        taken = node.value.take(0, match.partial if last else len(node.ids))
        for piece in taken.pieces:
            if pieces and pieces[-1].extent is piece.extent and pieces[-1].stop == piece.start:
                pieces[-1] = Piece(piece.extent, pieces[-1].start, piece.stop)
            else:
                pieces.append(piece)
        taken.release()
    return pieces

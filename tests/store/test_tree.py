"""The prefix tree against a brute-force oracle: a plain set of sequences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachefriendly.store.tree import Node, PrefixTree

sequences = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), max_size=12)


@dataclass
class Run:
    """A value that remembers its ids and whether it was released."""

    ids: tuple[int, ...]
    released: bool = False

    def take(self, start: int, stop: int) -> Run:
        assert not self.released
        return Run(self.ids[start:stop])

    def release(self) -> None:
        assert not self.released
        self.released = True


def filled(kept: list[list[int]]) -> PrefixTree[Run]:
    tree: PrefixTree[Run] = PrefixTree()
    for ids in kept:
        tree.insert(ids, Run(tuple(ids)))
    return tree


def longest(kept: Iterable[Sequence[int]], ids: Sequence[int]) -> int:
    """By plain loops: the oracle must not call what it checks."""
    best = 0
    for other in kept:
        length = 0
        while length < min(len(other), len(ids)) and other[length] == ids[length]:
            length += 1
        best = max(best, length)
    return best


@given(kept=sequences, probe=st.lists(st.integers(0, 2), max_size=9))
def test_match_is_the_longest_common_prefix(kept: list[list[int]], probe: list[int]) -> None:
    tree = filled(kept)
    match = tree.match(probe)
    assert match.length == longest(kept, probe)
    found = [i for node in match.nodes[:-1] for i in node.ids]
    if match.nodes:
        found += match.nodes[-1].ids[: match.partial]
    assert found == probe[: match.length]


@given(kept=sequences)
def test_every_node_holds_exactly_its_ids(kept: list[list[int]]) -> None:
    tree = filled(kept)
    prefixes = {tuple(ids[:n]) for ids in kept for n in range(1, len(ids) + 1)}
    assert tree.tokens == len(prefixes)
    for node in tree.nodes():
        assert node.value.ids == node.ids
        assert not node.value.released


@given(kept=sequences, victims=st.lists(st.integers(0, 30), max_size=10))
def test_evicting_leaves_keeps_the_rest(kept: list[list[int]], victims: list[int]) -> None:
    tree = filled(kept)
    held = {tuple(ids[:n]) for ids in kept for n in range(1, len(ids) + 1)}
    for victim in victims:
        leaves = sorted(tree.leaves(), key=lambda node: node.last_used)
        if leaves:
            leaf = leaves[victim % len(leaves)]
            gone = path(leaf)
            held -= {gone[:n] for n in range(len(gone) - len(leaf.ids) + 1, len(gone) + 1)}
            tree.evict(leaf)
    assert tree.tokens == len(held)
    for ids in kept:
        assert tree.match(ids).length == longest(held, ids)
    tree.clear()
    assert tree.tokens == 0
    assert list(tree.nodes()) == []


def path(node: Node[Run] | None) -> tuple[int, ...]:
    return path(node.parent) + node.ids if node else ()


def test_leased_and_inner_nodes_are_not_evicted() -> None:
    tree = filled([[1, 2, 3], [1, 2, 4]])
    inner = tree.match([1, 2]).nodes[0]
    with pytest.raises(ValueError, match="leaves without leases"):
        tree.evict(inner)
    match = tree.match([1, 2, 3])
    with tree.lease(match), pytest.raises(ValueError, match="leaves without leases"):
        tree.evict(match.nodes[-1])
    tree.evict(match.nodes[-1])
    assert tree.match([1, 2, 3]).length == 2


def test_a_lease_survives_a_split() -> None:
    tree = filled([[1, 2, 3, 4]])
    lease = tree.lease(tree.match([1, 2, 3, 4]))
    tree.insert([1, 2, 9], Run((1, 2, 9)))
    assert [node.leases for node in tree.match([1, 2, 3, 4]).nodes] == [1, 1]
    lease.release()
    lease.release()
    assert all(node.leases == 0 for node in tree.nodes())


def test_a_hit_touches_every_ancestor() -> None:
    tree = filled([[1, 2], [1, 2, 3], [5, 6]])
    tree.touch(tree.match([1, 2, 3]))
    youngest = max(node.last_used for node in tree.nodes())
    assert [node.last_used for node in tree.match([1, 2, 3]).nodes] == [youngest, youngest]

"""Prefix trees by space, and what every store does with them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Generic, TypeVar

from cachefriendly.store.tree import PrefixTree, SpanValue

__all__ = ["TreesBySpace"]

V = TypeVar("V", bound=SpanValue)


class TreesBySpace(Generic[V]):
    """One prefix tree per space on one clock; an empty tree is dropped.

    The base of the stores. Not thread safe: the engine thread owns it.
    """

    def __init__(self) -> None:
        self._clock = count(1)
        self._trees: dict[str, PrefixTree[V]] = {}

    def lookup(self, ids: Sequence[int], space: str = "") -> int:
        """Tokens of ``ids`` that are held, without touching anything."""
        tree = self._trees.get(space)
        return tree.match(ids).length if tree else 0

    def forget(self, space: str) -> None:
        """Drop everything of a space that is not in use right now."""
        tree = self._trees.get(space)
        if tree is not None:
            tree.clear()
            self._drop_if_empty(tree)

    def clear(self) -> None:
        """Drop everything that is not in use right now."""
        for space in list(self._trees):
            self.forget(space)

    def spaces(self) -> set[str]:
        """The spaces that hold anything."""
        return set(self._trees)

    def _tree(self, space: str) -> PrefixTree[V]:
        return self._trees.setdefault(space, PrefixTree(self._clock))

    def _drop_if_empty(self, tree: PrefixTree[V]) -> None:
        """A thousand namespaces that come and go leave nothing behind."""
        if not tree.tokens:
            self._trees = {space: t for space, t in self._trees.items() if t is not tree}

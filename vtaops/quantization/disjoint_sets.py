"""Disjoint sets (union-find): which elements are tied to each other."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class DisjointSets(Generic[T]):
    """Sets of elements that grow together; an element is alone until it is joined."""

    def __init__(self) -> None:
        self._parents: dict[T, T] = {}

    def root(self, element: T) -> T:
        """Return the representative of the set of an element."""
        parents = self._parents
        while (parent := parents.get(element, element)) != element:
            parents[element] = parents.get(parent, parent)
            element = parent
        return element

    def join(self, kept: T, *others: T) -> None:
        """Unite sets; the representative of `kept` is that of all."""
        for other in others:
            self._parents[self.root(other)] = self.root(kept)

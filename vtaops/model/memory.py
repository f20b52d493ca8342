"""The arena: DRAM offsets of images, which may overlap if their lifetimes do not.

Greedy by size, then best fit: the largest image first, each into the smallest gap that its
lifetime permits. The tests compare the result with the optimum for small cases and with a lower
bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vtaops.base.shapes import ceil_div


@dataclass(frozen=True)
class Lifetime:
    """The lifetime and size of an image.

    Attributes
    ----------
    first, last : int
        The steps of its first store and of its last access.
    nbytes : int
        Size.
    """

    first: int
    last: int
    nbytes: int

    def meets(self, other: Lifetime) -> bool:
        """Whether two lifetimes overlap."""
        return self.first <= other.last and other.first <= self.last


def place(lifetimes: Mapping[Any, Lifetime], alignment: int) -> dict[Any, int]:
    """Assign each image its first byte in the arena.

    Parameters
    ----------
    lifetimes : mapping
        The images, by name or number.
    alignment : int
        Alignment of every image in bytes.
    """
    offsets: dict[Any, int] = {}
    by_size = sorted(lifetimes.items(), key=lambda item: (-item[1].nbytes, item[1].first))
    for name, lifetime in by_size:
        taken = sorted(
            (offsets[other], offsets[other] + lifetimes[other].nbytes)
            for other in offsets
            if lifetimes[other].meets(lifetime)
        )
        offsets[name] = _best_gap(taken, lifetime.nbytes, alignment)
    return offsets


def _best_gap(taken: Sequence[tuple[int, int]], nbytes: int, alignment: int) -> int:
    """Return the start of the smallest sufficient gap between the ranges `taken`, or their end."""
    gaps, start = [], 0
    for first, behind in taken:
        if first - start >= nbytes:
            gaps.append((first - start, start))
        start = max(start, ceil_div(behind, alignment) * alignment)
    return min(gaps)[1] if gaps else start

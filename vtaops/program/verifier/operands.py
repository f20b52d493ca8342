"""The elements that an instruction touches in all iterations of its loops, as bits of an integer.

Sets of elements of a scratchpad are integers here: element e is in the set if bit e is 1. So a
union, an intersection and a shift are one operation each, for thousands of elements.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vtaops.base.shapes import Ints
from vtaops.program.verifier.rules import CheckedInstruction, Rule

Loops = tuple[tuple[int, int], ...]
"""For each loop, outermost first: iterations, and stride in elements."""


class Column(NamedTuple):
    """A set of elements: bounds, and the elements counted from the least."""

    least: int
    greatest: int
    elements: int

    def moved(self, step: CheckedInstruction, by: int, name: str, depth: int) -> int:
        """Return the elements that lie so far behind these, in a memory."""
        greatest = self.greatest + by
        if greatest >= depth:
            reason = f"it touches element {greatest} of {name}, which has {depth}"
            step.reject(Rule.SRAM_BOUNDS, reason)
        return self.elements << self.least + by


def column_of(elements: Ints) -> Column:
    """Return what micro-ops name in one of their fields."""
    least, greatest = int(elements.min()), int(elements.max())
    flags = np.zeros(greatest - least + 1, np.bool_)
    flags[elements - least] = True
    packed = np.packbits(flags, bitorder="little").tobytes()
    return Column(least, greatest, int.from_bytes(packed, "little"))


def span(first: int, size: int) -> int:
    """Return the set of `size` consecutive elements."""
    return ((1 << size) - 1) << first


def rows(first: int, count: int, size: int, stride: int) -> int:
    """Return the set of rows of consecutive elements, the first of which starts at `first`."""
    return repeated(span(0, size), ((count, stride),)) << first


def first_of(elements: int) -> int:
    """Return the first element of a set that is not empty."""
    return (elements & -elements).bit_length() - 1


def touched(column: Column, loops: Loops, depth: int) -> Column:
    """Return the elements that one micro-op column reaches in all iterations.

    The maximum index is that of the largest micro-op in the last iterations, so a set that no
    memory of this depth holds, which `moved` refuses, is never built.
    """
    greatest = column.greatest + sum((count - 1) * factor for count, factor in loops)
    inside = greatest - column.least < depth
    return Column(column.least, greatest, repeated(column.elements, loops) if inside else 0)


def repeated(elements: int, loops: Loops) -> int:
    """Return the union of a set with its copies in all iterations of loops.

    Each pass doubles the number of copies.
    """
    for count, distance in reversed(loops):
        copies = 1
        while distance and copies < count:
            added = min(copies, count - copies)
            elements |= elements << added * distance
            copies += added
    return elements

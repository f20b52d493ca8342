"""The elements that an instruction touches in all iterations of its loops."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from vtaops.base.shapes import Flags, Ints
from vtaops.program.verifier.history import Elements, History, shifted
from vtaops.program.verifier.rules import CheckedInstruction, Rule

Loops = tuple[tuple[int, int], ...]
"""For each loop, outermost first: iterations, and stride in elements."""


Operands = tuple[Elements, list[tuple[History, Elements]]]
"""Elements that an instruction with loops touches: accumulators that it writes, what it reads."""


class Column(NamedTuple):
    """The elements that one operand of micro-ops names: bounds, and distances from the least."""

    least: int
    greatest: int
    distances: bytes
    """As int64."""


def columns_of(micro_ops: Ints) -> list[Column]:
    """Return the columns of micro-ops, given as rows."""
    least, greatest = micro_ops.min(axis=0), micro_ops.max(axis=0)
    distances = (column.tobytes() for column in (micro_ops - least).T)
    return [*map(Column, least.tolist(), greatest.tolist(), distances)]


def touched(
    step: CheckedInstruction, name: str, depth: int, column: Column, loops: Loops
) -> Elements:
    """Return the elements that one micro-op column reaches in all iterations.

    The maximum index is that of the largest micro-op in the last iterations, so bounds are checked
    before any set is built; the set then costs O(depth log iterations), for loops of any length.

    Parameters
    ----------
    step : CheckedInstruction
        The instruction.
    name, depth : str, int
        The memory.
    column : Column
        The elements of the micro-ops.
    loops : Loops
        The loops.
    """
    greatest = column.greatest
    for count, factor in loops:
        greatest += (count - 1) * factor
    if greatest >= depth:
        step.reject(Rule.SRAM_BOUNDS, f"it touches element {greatest} of {name}, which has {depth}")
    return shifted(_reached(column.distances, loops), column.least)


@lru_cache(maxsize=1024)
def _reached(distances: bytes, loops: Loops) -> Elements:
    """Return the elements that micro-ops with these distances from element 0 reach."""
    column = np.frombuffer(distances, np.int64)
    mask = np.zeros(column.max() + 1 + sum((count - 1) * factor for count, factor in loops), "?")
    mask[column] = True
    for count, factor in reversed(loops):
        _repeat(mask, count, factor)
    return slice(0, len(mask)) if mask.all() else np.flatnonzero(mask)


@lru_cache(maxsize=1024)
def rows(count: int, length: int, stride: int) -> Elements:
    """Return the elements of rows, the first of which starts at element 0."""
    if count == 1 or stride <= length:
        return slice(0, (count - 1) * stride + length)
    starts = np.arange(count, dtype=np.intp)[:, np.newaxis] * stride
    return (starts + np.arange(length, dtype=np.intp)).reshape(-1)


def _repeat(mask: Flags, count: int, distance: int) -> None:
    """Unite `mask` in place with its copies shifted by 1..count-1 times `distance`.

    Each pass doubles the number of copies.
    """
    copies = 1
    while distance and copies < count:
        added = min(copies, count - copies)
        shift = added * distance
        mask[shift:] |= mask[:-shift].copy()
        copies += added

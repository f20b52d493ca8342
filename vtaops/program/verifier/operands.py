"""The elements that an instruction touches in all iterations of its loops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vtaops.program.verifier.history import Elements
from vtaops.program.verifier.rules import ProofStep, Rule


@dataclass(frozen=True, slots=True)
class Operands:
    """Elements that an instruction with loops touches; `src` of ALU: accumulators, else inputs."""

    dst: Elements
    src: Elements | None = None
    wgt: Elements | None = None


def touched(
    step: ProofStep,
    name: str,
    depth: int,
    column: npt.NDArray[np.int64],
    loops: tuple[tuple[int, int], tuple[int, int]],
) -> Elements:
    """Return the elements that one micro-op column reaches in all iterations.

    The maximum index is that of the largest micro-op in the last iterations, so bounds are checked
    before any set is built; the set then costs O(depth log iterations), for loops of any length.

    Parameters
    ----------
    step : ProofStep
        The instruction.
    name, depth : str, int
        The memory.
    column : ndarray of int64
        The element of each micro-op.
    loops : ((int, int), (int, int))
        For the outer and the inner loop: iterations, and stride in elements.
    """
    greatest = int(column.max()) + sum((count - 1) * factor for count, factor in loops)
    if greatest >= depth:
        step.reject(Rule.SRAM_BOUNDS, f"it touches element {greatest} of {name}, which has {depth}")
    mask = np.zeros(depth, np.bool_)
    mask[column] = True
    for count, factor in reversed(loops):
        _repeat(mask, count, factor)
    elements = np.flatnonzero(mask)
    first, last = int(elements[0]), int(elements[-1])
    return slice(first, last + 1) if last - first + 1 == len(elements) else elements


def _repeat(mask: npt.NDArray[np.bool_], count: int, distance: int) -> None:
    """Unite `mask` in place with its copies shifted by 1..count-1 times `distance`.

    Each pass doubles the number of copies.
    """
    copies = 1
    while distance and copies < count:
        added = min(copies, count - copies)
        shift = added * distance
        mask[shift:] |= mask[:-shift].copy()
        copies += added

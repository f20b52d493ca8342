"""The elements that a GEMM or ALU instruction touches in all iterations of its loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from vtaops.machine.isa import Alu, Depthwise, Gemm, Instruction, LoopInstruction, Pool
from vtaops.program.verifier.history import Elements
from vtaops.program.verifier.rules import ProofStep, Rule


@dataclass(frozen=True, slots=True)
class Operands:
    """Elements that an instruction with loops touches; `src` of ALU: accumulators, else inputs."""

    dst: Elements
    src: Elements | None
    wgt: Elements | None


def _but_tokens(cls: type[LoopInstruction]) -> Callable[[Instruction], tuple[int, ...]]:
    tokens = {f.name for f in fields(Instruction)}
    return attrgetter(*(f.name for f in fields(cls) if f.name not in tokens))


_FIELDS = {cls: _but_tokens(cls) for cls in (Gemm, Alu, Depthwise, Pool)}


def without_tokens(i: LoopInstruction) -> tuple[object, ...]:
    """Return all of an instruction but its tokens: equal ones touch the same elements."""
    return type(i), *_FIELDS[type(i)](i)


@dataclass(frozen=True, slots=True)
class Loops:
    """The two hardware loops of a GEMM or ALU instruction."""

    step: ProofStep
    iter_out: int
    iter_in: int

    def touched(
        self,
        name: str,
        depth: int,
        column: npt.NDArray[np.int64],
        factor_out: int,
        factor_in: int,
    ) -> Elements:
        """Return the elements that one micro-op column reaches in all iterations.

        The greatest index is that of the greatest micro-op in the last iterations, so bounds are
        checked before any set is built; the set then costs O(depth log iterations), however long
        the loops are.
        """
        greatest = (
            int(column.max()) + (self.iter_out - 1) * factor_out + (self.iter_in - 1) * factor_in
        )
        if greatest >= depth:
            self.step.reject(
                Rule.SRAM_BOUNDS, f"it touches element {greatest} of {name}, which has {depth}"
            )
        mask = np.zeros(depth, np.bool_)
        mask[column] = True
        _repeat(mask, self.iter_in, factor_in)
        _repeat(mask, self.iter_out, factor_out)
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

"""Operation: an instruction on its way into a program, with what it touches.

Emission creates operations, the placement of micro-ops and the insertion of tokens refine them, and
assembly encodes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vtaops.machine.isa import Instruction, Post
from vtaops.program import NO_BUFFER

Elements = npt.NDArray[np.int64]
"""Distinct element numbers."""


def distinct(elements: Elements) -> Elements:
    """Return each of some element numbers once, in ascending order.

    As `numpy.unique`, in a tenth of its time: the numbers are below the depth of a memory.
    """
    if not elements.size:
        return elements.ravel()
    present = np.zeros(int(elements.max()) + 1, np.bool_)
    present[elements] = True
    return np.flatnonzero(present)


@dataclass(frozen=True)
class Touch:
    """Elements of one memory that an operation reads or writes.

    Attributes
    ----------
    space : str
        ``"inp"``, ``"wgt"``, ``"acc"``, ``"post"``, ``"table"``; `link` adds those of DRAM.
    elements : ndarray of int64
        Distinct element numbers.
    write : bool
        Whether they are written.
    """

    space: str
    elements: Elements
    write: bool

    @cached_property
    def end(self) -> int:
        """One past the last of the elements; 0 if there is none."""
        return int(self.elements.max(initial=-1)) + 1

    @cached_property
    def index(self) -> Elements | slice:
        """What chooses the elements of an array, in any order: a slice, where they have no gaps."""
        begin = self.end - len(self.elements)
        if not len(self.elements) or self.elements.min() < begin:
            return self.elements
        return slice(begin, self.end)


@dataclass(slots=True, eq=False)
class Operation:
    """One instruction without tokens and without the place of its micro-ops.

    Attributes
    ----------
    instruction : Instruction
        Until the micro-ops are placed, ``uop_begin`` and ``uop_end`` of GEMM and ALU instructions
        are a range of `micro_ops`.
    relocation : int
        Buffer that ``dram_base`` counts from, as in `Program.relocations`.
    touches : tuple of Touch
        What it reads and writes, apart from the micro-op memory, which the compute unit alone uses.
    micro_ops : ndarray of int64, shape (n, 3), or None
        Rows of (dst, src, wgt).
    operator : int
        Which of the operators of a program it belongs to.
    post : Post or None
        What an ALU instruction stands for until `post` decides who does it: a requantisation, with
        the row of parameters as the source of each micro-op.
    """

    instruction: Instruction
    relocation: int = NO_BUFFER
    touches: tuple[Touch, ...] = ()
    micro_ops: npt.NDArray[np.int64] | None = None
    operator: int = 0
    post: Post | None = None

"""Operation: an instruction on its way into a program, with what it touches; Fragment: several.

Emission creates operations, the placement of micro-ops and the insertion of tokens refine them, and
assembly encodes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vtaops.lowering.options import LoweringOptions
from vtaops.machine.config import HardwareConfig
from vtaops.machine.isa import Gemm, Instruction, LoopInstruction, Pool, Post
from vtaops.program import NO_BUFFER, Buffer, OperatorRecord

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

    @property
    def writes(self) -> list[Touch]:
        """What it writes."""
        return [touch for touch in self.touches if touch.write]

    @property
    def in_place(self) -> bool:
        """Whether it uses what the accumulators held that it writes."""
        i = self.instruction
        begins = isinstance(i, Gemm | Pool) and (i.reset or i.overwrite)
        return isinstance(i, LoopInstruction) and not begins

    @property
    def accumulators(self) -> list[Elements]:
        """The elements of the accumulator memory that it touches."""
        return [touch.elements for touch in self.touches if touch.space == "acc"]

    @property
    def written(self) -> Elements:
        """The elements of the accumulator memory that it writes."""
        return next(t.elements for t in self.touches if t.space == "acc" and t.write)

    def steps(self, operand: str) -> Elements:
        """Return the elements of ``"dst"`` or ``"src"``, shape (iter_out, iter_in, micro-ops)."""
        i = self.instruction
        assert isinstance(i, LoopInstruction)
        assert self.micro_ops is not None
        own = self.micro_ops[i.uop_begin : i.uop_end, ("dst", "src").index(operand)]
        return loop_steps(i, operand)[:, :, None] + own


def loop_steps(i: LoopInstruction, operand: str) -> Elements:
    """Return what the hardware loops add to an operand, shape (iter_out, iter_in)."""
    outer: int = getattr(i, f"{operand}_factor_out")
    inner: int = getattr(i, f"{operand}_factor_in")
    steps: Elements = np.arange(i.iter_out)[:, None] * outer + np.arange(i.iter_in) * inner
    return steps


class Variants:
    """Instructions with other fields; what operations share stays shared."""

    def __init__(self) -> None:
        # The plain one is kept, so that no other takes its identity.
        self._known: dict[tuple[object, ...], tuple[Instruction, Instruction]] = {}

    def of(self, plain: Instruction, **changes: int) -> Instruction:
        """Return an instruction with some fields changed."""
        key = (id(plain), *changes.items())
        if key not in self._known:
            self._known[key] = plain, replace(plain, **changes)
        return self._known[key][1]


@dataclass(frozen=True)
class Fragment:
    """The operations of one operator.

    Attributes
    ----------
    config : HardwareConfig
        For which hardware.
    operations : tuple of Operation
        In program order; relocations count `buffers`.
    buffers : tuple of Buffer
        The arguments and constants of the operator, with the borders of `options`.
    options : LoweringOptions
        How it was emitted.
    record : OperatorRecord
        Which operator it is; without name and spans.
    """

    config: HardwareConfig
    operations: tuple[Operation, ...]
    buffers: tuple[Buffer, ...]
    options: LoweringOptions
    record: OperatorRecord

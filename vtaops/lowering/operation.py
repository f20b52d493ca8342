"""Operation: an instruction under construction, with the elements it touches; Fragment: several.

Emission creates operations, micro-op placement and token insertion refine them, and assembly
encodes them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vtaops.lowering.options import LoweringOptions
from vtaops.machine.config import HardwareConfig
from vtaops.machine.isa import Gemm, Instruction, LoopInstruction, Pool, Post
from vtaops.program import NO_BUFFER, Buffer, OperatorRecord

Elements = npt.NDArray[np.int64]
"""Distinct element numbers."""


def distinct(elements: Elements) -> Elements:
    """Return the distinct element numbers, in ascending order.

    As `numpy.unique`, ten times as fast: the numbers are below the depth of a memory.
    """
    if not elements.size:
        return elements.ravel()
    present = np.zeros(largest(elements.ravel()) + 1, np.bool_)
    present[elements] = True
    return np.flatnonzero(present)


def largest(elements: Elements) -> int:
    """Return the largest of one or more numbers.

    As `elements.max()`, in a third of the time for the few that an instruction touches.
    """
    return int(elements[elements.argmax()])


class Touch:
    """Elements of one memory that an operation reads or writes.

    Parameters
    ----------
    space : str
        ``"inp"``, ``"wgt"``, ``"acc"``, ``"post"``, ``"table"``; `link` adds DRAM spaces.
    elements : ndarray of int64
        Distinct element numbers.
    write : bool
        Whether they are written.

    Attributes
    ----------
    size : int
        Number of elements.
    end : int
        One past the last element; 0 if empty.
    begin : int
        The first element if they are contiguous, else -1.
    index : ndarray of int64 or slice
        Index of the elements in an array, in any order: a slice if they are contiguous.
    """

    __slots__ = ("begin", "elements", "end", "index", "size", "space", "write")

    def __init__(self, space: str, elements: Elements, write: bool) -> None:
        self.space, self.elements, self.write = space, elements, write
        self.size = len(elements)
        self.end = largest(elements) + 1 if self.size else 0
        first = self.end - self.size
        self.begin = first if self.size and elements[elements.argmin()] == first else -1
        self.index: Elements | slice = elements if self.begin < 0 else slice(first, self.end)

    @staticmethod
    def of_run(space: str, begin: int, size: int, write: bool) -> Touch:
        """Return a touch of `size` consecutive elements, whose end and index need no search."""
        touch = Touch.__new__(Touch)
        touch.space, touch.elements, touch.write = space, np.arange(begin, begin + size), write
        touch.size, touch.begin, touch.end = size, begin, size and begin + size
        touch.index = slice(begin, begin + size)
        return touch

    def moved(self, by: int) -> Touch:
        """Return the same elements, `by` further."""
        if self.begin >= 0:
            return Touch.of_run(self.space, self.begin + by, self.size, self.write)
        return Touch(self.space, self.elements + by, self.write)


@dataclass(slots=True, eq=False)
class Operation:
    """One instruction without tokens and without micro-op addresses.

    Attributes
    ----------
    instruction : Instruction
        Until micro-ops are placed, ``uop_begin`` and ``uop_end`` of GEMM and ALU instructions
        are a range of `micro_ops`.
    relocation : int
        Buffer that ``dram_base`` is relative to, as in `Program.relocations`.
    touches : tuple of Touch
        Elements read and written, except micro-op memory, which only the compute unit uses.
    micro_ops : ndarray of int64, shape (n, 3), or None
        Rows of (dst, src, wgt).
    operator : int
        Index of its operator in the program.
    post : Post or None
        The requantization that an ALU instruction represents until the pass `post` decides who
        executes it, with the row of parameters as the source of each micro-op.
    """

    instruction: Instruction
    relocation: int = NO_BUFFER
    touches: tuple[Touch, ...] = ()
    micro_ops: npt.NDArray[np.int64] | None = None
    operator: int = 0
    post: Post | None = None

    @property
    def writes(self) -> list[Touch]:
        """The touches that write."""
        return [touch for touch in self.touches if touch.write]

    @property
    def in_place(self) -> bool:
        """Whether it depends on the previous values of the accumulators that it writes."""
        i = self.instruction
        begins = isinstance(i, Gemm | Pool) and (i.reset or i.overwrite)
        return isinstance(i, LoopInstruction) and not begins

    @property
    def accumulators(self) -> list[Elements]:
        """The accumulator elements that it touches."""
        return [touch.elements for touch in self.touches if touch.space == "acc"]

    @property
    def written(self) -> Elements:
        """The accumulator elements that it writes."""
        return next(t.elements for t in self.touches if t.space == "acc" and t.write)

    def steps(self, operand: str) -> Elements:
        """Return the elements of ``"dst"`` or ``"src"``, shape (iter_out, iter_in, micro-ops)."""
        i = self.instruction
        assert isinstance(i, LoopInstruction)
        assert self.micro_ops is not None
        own = self.micro_ops[i.uop_begin : i.uop_end, ("dst", "src").index(operand)]
        return loop_steps(i, operand)[:, :, None] + own


def loop_steps(i: LoopInstruction, operand: str) -> Elements:
    """Return an operand's offsets over the hardware loops, shape (iter_out, iter_in)."""
    outer: int = getattr(i, f"{operand}_factor_out")
    inner: int = getattr(i, f"{operand}_factor_in")
    steps: Elements = np.arange(i.iter_out)[:, None] * outer + np.arange(i.iter_in) * inner
    return steps


@dataclass(frozen=True)
class Fragment:
    """The operations of one operator.

    Attributes
    ----------
    config : HardwareConfig
        The target hardware.
    operations : tuple of Operation
        In program order; relocations index `buffers`.
    buffers : tuple of Buffer
        The arguments and constants of the operator. One with strides in `options` is the bytes of
        the larger image from the first block to the last tile.
    options : LoweringOptions
        Options of the emission.
    record : OperatorRecord
        Identity of the operator; without name and spans.
    """

    config: HardwareConfig
    operations: tuple[Operation, ...]
    buffers: tuple[Buffer, ...]
    options: LoweringOptions
    record: OperatorRecord

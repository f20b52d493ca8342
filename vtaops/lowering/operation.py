"""Operation: an instruction under construction, with what it accesses; Fragment: several.

Emission creates operations, passes rewrite them, and `link` places their micro-ops, finds their
tokens and encodes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vtaops.base.shapes import Ints
from vtaops.lowering.options import LoweringOptions
from vtaops.machine.accesses import OFF, Access, accesses, steps
from vtaops.machine.config import POST_ROWS, HardwareConfig, Memory
from vtaops.machine.isa import Instruction, LoopInstruction, Post
from vtaops.program import NO_BUFFER, Buffer, OperatorRecord

Elements = npt.NDArray[np.int64]
"""Element numbers."""


@dataclass(frozen=True, eq=False)
class Operation:
    """One instruction without tokens and without micro-op addresses.

    Attributes
    ----------
    instruction : Instruction
        Until micro-ops are placed, ``uop_begin`` and ``uop_end`` of GEMM and ALU instructions
        are a range of `micro_ops`.
    micro_ops : ndarray of int64, shape (n, 3), or None
        Rows of (dst, src, wgt).
    post : Post
        The post-processing of its results. Before the pass `post`, a placeholder ALU instruction
        stands for a requantization; its micro-ops' src are rows of parameters.
    relocation : int
        Buffer that ``dram_base`` is relative to, as in `Program.relocations`.
    operator : int
        Index of its operator in the program.
    dram : tuple of Access
        What it accesses of DRAM that the program both stores and loads; `link` adds it.
    """

    instruction: Instruction
    micro_ops: Ints | None = None
    post: Post = OFF
    relocation: int = NO_BUFFER
    operator: int = 0
    dram: tuple[Access, ...] = ()

    @cached_property
    def scratchpads(self) -> tuple[Access, ...]:
        """What it accesses on chip, but for the micro-op memory, which one unit alone uses."""
        return accesses(self.instruction, self.rows, self.post)

    @property
    def accesses(self) -> tuple[Access, ...]:
        """All that it accesses, DRAM last."""
        return self.scratchpads + self.dram

    @property
    def rows(self) -> Ints | None:
        i = self.instruction
        if self.micro_ops is None or not isinstance(i, LoopInstruction):
            return None
        return self.micro_ops[i.uop_begin : i.uop_end]

    @cached_property
    def key(self) -> tuple[object, ...]:
        """A key of all that its place in a program does not decide: equal tiles share work."""
        rows = None if self.micro_ops is None else self.micro_ops.tobytes()
        return self.instruction, rows, self.post

    def elsewhere(self, **changes: object) -> Operation:
        """Return the operation at another place in DRAM or in the program.

        As `dataclasses.replace`, but keeps what is known of its scratchpads.
        """
        other = object.__new__(Operation)
        vars(other).update(vars(self), **changes)
        vars(other).pop("key", None)
        return other

    def of(self, memory: Memory) -> list[Access]:
        """Return what it accesses in one scratchpad."""
        return [access for access in self.scratchpads if access.memory == memory]

    @property
    def written(self) -> Elements:
        """The accumulator elements that it writes."""
        return next(access.elements for access in self.of(Memory.ACC) if access.writes)

    def steps(self, operand: str) -> Elements:
        """Return the elements of ``"dst"`` or ``"src"``, shape (iter_out, iter_in, micro-ops)."""
        assert isinstance(self.instruction, LoopInstruction)
        assert self.rows is not None
        return steps(self.instruction, operand, self.rows)


@dataclass(frozen=True)
class PassContext:
    """What passes know beside the operations.

    Attributes
    ----------
    config : HardwareConfig
        The target hardware.
    max_micro_ops : int
        Micro-ops that fit the device's memory.
    buffers : sequence of Buffer
        Buffers of the program; only the program reads `SCRATCH`.
    interleave : mapping of range to int
        Ranges of consecutive operators to interleave, and the lag of each.
    """

    config: HardwareConfig
    max_micro_ops: int
    buffers: Sequence[Buffer] = ()
    interleave: Mapping[range, int] = field(default_factory=dict)

    @property
    def leaders(self) -> dict[int, int]:
        """The first operator of the interleaved range of each operator in one."""
        return leaders(self.interleave)


def leaders(ranges: Iterable[range]) -> dict[int, int]:
    """Map each member of ranges to the range's first member."""
    return {number: numbers[0] for numbers in ranges for number in numbers}


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

    @cached_property
    def extents(self) -> Mapping[Memory, int]:
        """The elements of each scratchpad that it uses, from the first one on."""
        used = dict.fromkeys((Memory.INP, Memory.WGT, Memory.ACC, Memory.POST, Memory.TABLE), 0)
        for operation in {id(o): o for o in self.operations}.values():
            for access in operation.scratchpads:
                # Biases and scales have half of the parameter memory each.
                rows = access.memory == Memory.POST
                end = int((access.elements % POST_ROWS).max()) + 1 if rows else access.end
                used[Memory(access.memory)] = max(used[Memory(access.memory)], end)
        return used

"""The walk over a program that tracks the micro-op memory, and its transfers in DRAM.

Imports no TVM: a board installs this room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vtaops.base.shapes import Ints
from vtaops.machine.config import Memory
from vtaops.machine.isa import (
    Encoding,
    Instruction,
    Load,
    LoopInstruction,
    MemoryInstruction,
)
from vtaops.program.program import Program


def walk(program: Program) -> Iterator[tuple[int, Instruction, Ints]]:
    """Yield (index, instruction, micro-ops) for each instruction.

    Micro-ops are rows (dst, src, wgt) as left in the micro-op memory by previous LOADs; those never
    loaded are zeros. Instructions without iterations have none.
    """
    table = Encoding.of(program.config).decode_micro_ops(program.micro_ops)
    memory = np.zeros((program.config.uop.depth, 3), np.int64)
    for index, i in enumerate(program.decode()):
        begin = end = 0
        if isinstance(i, Load) and i.memory == Memory.UOP:
            loaded = table[i.dram_base : i.dram_base + i.x_size]
            room = memory[i.sram_base :]  # shorter than the load in a program that does not verify
            room[: len(loaded)] = loaded[: len(room)]
        elif isinstance(i, LoopInstruction) and i.iterations:
            begin, end = i.uop_begin, i.uop_end
        yield index, i, memory.take(range(begin, end), axis=0, mode="wrap")


@dataclass(frozen=True)
class Transfer:
    """The data that one LOAD or STORE moves.

    Attributes
    ----------
    index : int
        Index of the instruction.
    instruction : Load or Store
        The instruction.
    buffer : int
        Index in ``Program.buffers``, `MICRO_OPS` or `NO_BUFFER`.
    row_start : ndarray of int64
        First byte of each row, counted from the start of the buffer.
    row_nbytes : int
        Bytes of a row.
    """

    index: int
    instruction: MemoryInstruction
    buffer: int
    row_start: Ints
    row_nbytes: int

    @property
    def nbytes(self) -> int:
        """Bytes that cross the port."""
        return len(self.row_start) * self.row_nbytes


def transfers(program: Program) -> Iterator[Transfer]:
    """Yield the transfers of a program, in program order; no-operations are skipped.

    Loads from the output memory are skipped, too: they do not use the port.
    """
    for index, instruction in enumerate(program.decode()):
        if not isinstance(instruction, MemoryInstruction) or instruction.is_nop:
            continue
        if isinstance(instruction, Load) and instruction.forward:
            continue
        i, size = instruction, program.config.dram_element_bytes(Memory(instruction.memory))
        starts = (i.dram_base + np.arange(i.y_size) * i.x_stride) * size
        yield Transfer(index, i, int(program.relocations[index]), starts, i.x_size * size)

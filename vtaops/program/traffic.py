"""What a program reads and writes in DRAM and in the scratchpads, instruction by instruction.

Owns the translation of LOAD and STORE into ranges of bytes and elements; the reports draw and count
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vtaops.machine.config import Memory
from vtaops.machine.isa import Load, Store
from vtaops.program.program import MICRO_OPS, NO_BUFFER, Program

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Transfer:
    """The data that one LOAD or STORE moves.

    Attributes
    ----------
    index : int
        The instruction.
    write : bool
        Whether DRAM is written (STORE).
    buffer : int
        Index in ``Program.buffers``, `MICRO_OPS` or `NO_BUFFER`.
    memory : Memory
        The scratchpad.
    row_start : ndarray of int64
        First byte of each row, counted from the start of the buffer.
    row_nbytes : int
        Bytes of a row.
    sram_base, sram_size : int
        Scratchpad elements that are written (LOAD, padding included) or read (STORE).
    """

    index: int
    write: bool
    buffer: int
    memory: Memory
    row_start: Ints
    row_nbytes: int
    sram_base: int
    sram_size: int

    @property
    def nbytes(self) -> int:
        """Bytes that cross the port."""
        return len(self.row_start) * self.row_nbytes


def transfers(program: Program) -> Iterator[Transfer]:
    """Yield the transfers of a program, in program order; no-operations move nothing.

    Loads from the output memory are none: they do not cross the port.
    """
    for index, instruction in enumerate(program):
        if not isinstance(instruction, Load | Store) or instruction.is_nop:
            continue
        if isinstance(instruction, Load) and instruction.forward:
            continue
        memory = Memory(instruction.memory)
        size = program.config.dram_element_bytes(memory)
        rows = np.arange(instruction.y_size, dtype=np.int64)
        yield Transfer(
            index=index,
            write=isinstance(instruction, Store),
            buffer=int(program.relocations[index]),
            memory=memory,
            row_start=(instruction.dram_base + rows * instruction.x_stride) * size,
            row_nbytes=instruction.x_size * size,
            sram_base=instruction.sram_base,
            sram_size=instruction.sram_size,
        )


def compulsory_nbytes(program: Program) -> int:
    """Return the bytes that no schedule with the same accesses could avoid.

    Every byte of DRAM that the program reads, and every byte that it writes, counted once: what
    would cross the port if the scratchpads were unlimited. Micro-ops are included.
    """
    touched: dict[tuple[int, bool], npt.NDArray[np.bool_]] = {}
    total = 0
    for transfer in transfers(program):
        if transfer.buffer == NO_BUFFER:  # an absolute address: nothing to compare it with
            total += transfer.nbytes
            continue
        key = transfer.buffer, transfer.write
        if key not in touched:
            touched[key] = np.zeros(_words(program, transfer.buffer), bool)
        row = np.arange(transfer.row_nbytes // _WORD_BYTES)
        touched[key][(transfer.row_start // _WORD_BYTES)[:, None] + row] = True
    return total + _WORD_BYTES * sum(int(words.sum()) for words in touched.values())


_WORD_BYTES = 4  # every DRAM element is a multiple of it


def _words(program: Program, buffer: int) -> int:
    if buffer == MICRO_OPS:
        return len(program.micro_ops)
    return -(-program.buffers[buffer].nbytes // _WORD_BYTES)

"""Placement of micro-op sequences: equal ones are stored once and loaded as seldom as possible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vtaops.lowering.operation import Operation
from vtaops.machine.config import HardwareConfig, Memory
from vtaops.machine.isa import Encoding, Instruction, Load, LoopInstruction
from vtaops.program import MICRO_OPS

Table = npt.NDArray[np.int64]
"""Rows of (dst, src, wgt)."""


def place_micro_ops(
    operations: list[Operation], config: HardwareConfig, depth: int | None = None
) -> tuple[list[Operation], npt.NDArray[np.uint32]]:
    """Give every sequence a place in the micro-op memory and load it before its use.

    Programs are cut into stretches whose distinct sequences fit the memory together; each stretch
    begins with one LOAD UOP of all of them. Most programs are one stretch. `depth` is the size of
    the memory, where it is less than the configuration says.

    Returns
    -------
    operations : list of Operation
        With micro-op ranges filled in and LOAD UOP instructions added.
    table : ndarray of uint32
        The micro-op table in DRAM.
    """
    placement = _Placement(depth or config.uop.depth)
    for operation in operations:
        placement.append(operation)
    return placement.finished(), Encoding.of(config).encode_micro_ops(placement.table())


class _Placement:
    """The stretches so far, and the one that is being filled.

    Parameters
    ----------
    depth : int
        Micro-ops that fit the memory.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._placed: list[Operation] = []
        self._sequences: list[Table] = []  # in the order of the table in DRAM
        self._loaded = 0  # rows of the table that closed stretches load
        self._stretch: list[Operation] = []
        self._places: dict[bytes, int] = {}  # sequences of the stretch, in the micro-op memory
        self._size = 0  # micro-ops of the stretch
        # Operations share instructions. The plain one is kept, so that no other has its identity.
        self._located: dict[tuple[int, int], tuple[Instruction, Instruction]] = {}

    def append(self, operation: Operation) -> None:
        """Add an operation; its sequence finds a place in the stretch, or begins another one."""
        if operation.micro_ops is not None:
            place = self._place(operation.micro_ops)
            operation.instruction = self._at(operation.instruction, place)
        self._stretch.append(operation)

    def finished(self) -> list[Operation]:
        """Return all operations."""
        self._close()
        return self._placed

    def table(self) -> Table:
        """Return the micro-op table."""
        return np.concatenate(self._sequences) if self._sequences else np.zeros((0, 3), np.int64)

    def _place(self, sequence: Table) -> int:
        key = sequence.tobytes()
        if key not in self._places:
            if self._size + len(sequence) > self._depth:
                self._close()
            self._places[key] = self._size
            self._size += len(sequence)
            self._sequences.append(sequence)
        return self._places[key]

    def _close(self) -> None:
        """End the stretch, and begin an empty one."""
        if self._size:
            load = _load(self._loaded, self._size)
            self._placed.append(Operation(load, MICRO_OPS, operator=self._stretch[0].operator))
        self._placed += self._stretch
        self._loaded += self._size
        self._stretch, self._places, self._size = [], {}, 0

    def _at(self, instruction: Instruction, place: int) -> Instruction:
        """Return an instruction with its micro-ops at a place."""
        key = id(instruction), place
        if key not in self._located:
            assert isinstance(instruction, LoopInstruction)
            begin, end = instruction.uop_begin + place, instruction.uop_end + place
            located = replace(instruction, uop_begin=begin, uop_end=end)
            self._located[key] = instruction, located
        return self._located[key][1]


def _load(dram: int, count: int) -> Load:
    return Load(memory=Memory.UOP, dram_base=dram, y_size=1, x_size=count, x_stride=count)

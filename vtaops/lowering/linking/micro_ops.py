"""Placement of micro-op sequences: store equal ones once, and load them as rarely as possible."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vtaops.lowering.operation import Operation
from vtaops.machine.config import HardwareConfig, Memory
from vtaops.machine.isa import Encoding, Load
from vtaops.program import MICRO_OPS

Table = npt.NDArray[np.int64]
"""Rows of (dst, src, wgt)."""


def place_micro_ops(
    operations: list[Operation], config: HardwareConfig, depth: int | None = None
) -> tuple[list[Operation], list[int], npt.NDArray[np.uint32]]:
    """Give every sequence an address in the micro-op memory and load it before its use.

    Programs are split into stretches whose distinct sequences fit the memory together; each stretch
    begins with one LOAD UOP of all of them. Most programs are one stretch. `depth` overrides the
    configured size of the memory.

    Returns
    -------
    operations : list of Operation
        With LOAD UOP instructions added.
    firsts : list of int
        Address of the first micro-op of each; 0 for those without micro-ops.
    table : ndarray of uint32
        The micro-op table in DRAM.
    """
    placement = _Placement(depth or config.uop.depth)
    for operation in operations:
        placement.append(operation)
    placement.close()
    table = np.concatenate([np.zeros((0, 3), np.int64), *placement.sequences])
    return placement.placed, placement.firsts, Encoding.of(config).encode_micro_ops(table)


class _Placement:
    """The closed stretches, and the open one.

    Parameters
    ----------
    depth : int
        Capacity of the micro-op memory.

    Attributes
    ----------
    placed : list of Operation
        Operations of closed stretches, and of the open one.
    firsts : list of int
        Address of the first micro-op of each.
    sequences : list of ndarray
        Sequences in the order of the DRAM table.
    """

    def __init__(self, depth: int) -> None:
        self.placed: list[Operation] = []
        self.firsts: list[int] = []
        self.sequences: list[Table] = []
        self._depth = depth
        self._loaded = 0  # rows of the table that closed stretches load
        self._begin = 0  # of the stretch
        self._places: dict[bytes, int] = {}  # sequences of the stretch, in the micro-op memory
        self._size = 0  # micro-ops of the stretch

    def append(self, operation: Operation) -> None:
        """Append an operation; open a new stretch if its sequence does not fit."""
        sequence = operation.micro_ops
        self.firsts.append(0 if sequence is None else self._place(sequence))
        self.placed.append(operation)

    def _place(self, sequence: Table) -> int:
        key = sequence.tobytes()
        if key not in self._places:
            if self._size + len(sequence) > self._depth:
                self.close()
            self._places[key] = self._size
            self._size += len(sequence)
            self.sequences.append(sequence)
        return self._places[key]

    def close(self) -> None:
        """Close the stretch, and open an empty one."""
        if self._size:
            size, operator = self._size, self.placed[self._begin].operator
            load = Load(
                memory=Memory.UOP, dram_base=self._loaded, y_size=1, x_size=size, x_stride=size
            )
            self.placed.insert(
                self._begin, Operation(load, relocation=MICRO_OPS, operator=operator)
            )
            self.firsts.insert(self._begin, 0)
        self._loaded += self._size
        self._begin, self._places, self._size = len(self.placed), {}, 0

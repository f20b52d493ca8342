"""Placement of micro-op sequences: equal ones are stored once and loaded as seldom as possible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vtaops.config import HardwareConfig, Memory
from vtaops.isa import Alu, Encoding, Gemm, Instruction, Load
from vtaops.lowering.operation import Operation
from vtaops.program import MICRO_OPS


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
    depth = depth or config.uop.depth
    placed: list[Operation] = []
    table: list[npt.NDArray[np.int64]] = []
    stretch: list[Operation] = []
    places: dict[bytes, int] = {}
    size = loaded = 0
    located: dict[tuple[int, int], Instruction] = {}

    def close() -> None:
        nonlocal loaded
        if size:
            placed.append(_load(loaded, size, stretch[0].operator))
            loaded += size
        placed.extend(stretch)

    for operation in operations:
        if operation.micro_ops is not None:
            key = operation.micro_ops.tobytes()
            if key not in places and size + len(operation.micro_ops) > depth:
                close()
                stretch, places, size = [], {}, 0
            if key not in places:
                places[key] = size
                size += len(operation.micro_ops)
                table.append(operation.micro_ops)
            place = id(operation.instruction), places[key]
            if place not in located:  # operations share instructions
                located[place] = _at(operation.instruction, places[key])
            operation.instruction = located[place]
        stretch.append(operation)
    close()
    rows = np.concatenate(table) if table else np.zeros((0, 3), dtype=np.int64)
    return placed, Encoding.of(config).encode_micro_ops(rows)


def _load(dram: int, count: int, operator: int) -> Operation:
    instruction = Load(memory=Memory.UOP, dram_base=dram, y_size=1, x_size=count, x_stride=count)
    return Operation(instruction, relocation=MICRO_OPS, operator=operator)


def _at(instruction: Instruction, place: int) -> Instruction:
    assert isinstance(instruction, Gemm | Alu)
    return replace(
        instruction,
        uop_begin=instruction.uop_begin + place,
        uop_end=instruction.uop_end + place,
    )

"""What tests of the functional simulator share: loads, accumulators, refused streams."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from trials.random_streams import CONFIGS, RandomProgram
from trials.reference_isa import launch, place, serialise
from vtaops.errors import DeviceError
from vtaops.machine.config import Memory
from vtaops.machine.isa import (
    Alu,
    AluOp,
    Encoding,
    Instruction,
    Load,
    Store,
)
from vtaops.runtime import Fsim

PYNQ = CONFIGS["pynq"]

LANES = PYNQ.acc.lanes


def load(device: Fsim, memory: Memory, data: npt.NDArray[np.generic], sram: int = 0) -> Load:
    """Place data in DRAM; return the LOAD of all its elements in one row."""
    unit = device.config.dram_element_bytes(memory)
    buffer = place(device, data)
    return Load(
        memory=memory,
        sram_base=sram,
        dram_base=buffer.address // unit,
        x_size=data.nbytes // unit,
        y_size=1,
    )


def load_micro_ops(device: Fsim, *table: tuple[int, int, int]) -> Load:
    return load(device, Memory.UOP, Encoding.of(device.config).encode_micro_ops(table))


def accumulators(device: Fsim, first: int, count: int) -> npt.NDArray[np.int32]:
    """Return accumulators of a device without a seed; overwrites them and micro-op 0."""
    out = device.alloc(4 * count * LANES)
    shift = Alu(alu_op=AluOp.SHR, use_imm=1, imm=8, uop_end=1, iter_out=1, iter_in=count)
    stream: list[Instruction] = [load_micro_ops(device, (first, 0, 0))]
    for byte in range(4):
        base = out.address // LANES + byte * count
        stream += [replace(shift, dst_factor_in=1)] if byte else []
        stream += [
            Store(memory=Memory.OUT, sram_base=first, dram_base=base, x_size=count, y_size=1)
        ]
    launch(device, serialise(stream))
    planes = device.read(out, out.nbytes).reshape(4, count, LANES)
    return np.ascontiguousarray(planes.transpose(1, 2, 0)).view(np.int32)[..., 0]


def random_program(name: str, seed: int, **options: bool) -> RandomProgram:
    """Return a program; those with odd seeds start with loads of all scratchpads."""
    program = RandomProgram(CONFIGS[name], seed, **options)
    if seed % 2:
        program.fill_scratchpads()
    program.random_instructions(80)
    return program


def refuse(device: Fsim, *stream: Instruction, match: str) -> str:
    with pytest.raises(DeviceError, match=re.escape(match)) as caught:
        launch(device, serialise(stream))
    assert type(caught.value) is DeviceError
    return str(caught.value)

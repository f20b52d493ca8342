"""What an implementation of VTA in hardware can execute, and the check of a stream against it.

The simulators execute the whole instruction set; the published hardware does not. A device that
knows its limits refuses an instruction instead of returning a wrong result.

Imports no TVM: a board installs this file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vtaops.config import HardwareConfig, Memory
from vtaops.errors import UnsupportedError
from vtaops.isa import OPCODE_BITS, Alu, AluOp, Encoding, Instruction, Load

_PADS = ("y_pad_top", "y_pad_bottom", "x_pad_left", "x_pad_right")


@dataclass(frozen=True)
class Capabilities:
    """Optional parts of the instruction set; by default all of them.

    Attributes
    ----------
    multiply : bool
        The ALU operation MUL.
    acc_8bit : bool
        Loads of 8-bit data into the accumulators.
    acc_padding, wgt_padding : bool
        Zeros around loads of accumulators and weights.
    uop_rows : bool
        Micro-op loads of several rows or with padding; otherwise only ``x_size`` counts.
    max_right_shift, max_left_shift : int
        Greatest immediate shifts.
    """

    multiply: bool = True
    acc_8bit: bool = True
    acc_padding: bool = True
    wgt_padding: bool = True
    uop_rows: bool = True
    max_right_shift: int = 1 << 15
    max_left_shift: int = 1 << 15


COMPLETE = Capabilities()
"""Everything: the simulators, and our RTL."""

UPSTREAM_HLS = Capabilities(
    multiply=False,
    acc_8bit=False,
    acc_padding=False,
    wgt_padding=False,
    uop_rows=False,
    max_right_shift=15,
    max_left_shift=16,
)
"""Upstream's HLS design as in the bitstream that it published for Pynq in June 2020.

It does not pad ACC loads: the commit that added this to the source (6096ca0) is half a year
younger.
"""


def check_instructions(
    config: HardwareConfig, words: npt.NDArray[np.uint64], capabilities: Capabilities
) -> None:
    """Refuse an instruction stream that the hardware would execute differently.

    Parameters
    ----------
    config : HardwareConfig
        The configuration that the instructions are encoded for.
    words : ndarray of uint64, shape (n, 2)
        Low and high half of each instruction.
    capabilities : Capabilities
        What the hardware has.

    Raises
    ------
    UnsupportedError
        Naming the first instruction that is not supported, and why.
    """
    if capabilities == COMPLETE:
        return
    rows, loads = _columns(config, words, Load)
    moves, memory = loads["x_size"] > 0, loads["memory"]
    padded = sum(loads[name] for name in _PADS) > 0
    several = (loads["y_size"] > 1) | padded
    _refuse(
        rows,
        (not capabilities.acc_8bit, moves & (memory == Memory.ACC_8BIT), "loads 8-bit data"),
        (not capabilities.acc_padding, padded & (memory == Memory.ACC), "pads accumulators"),
        (not capabilities.wgt_padding, padded & (memory == Memory.WGT), "pads weights"),
        (
            not capabilities.uop_rows,
            moves & several & (memory == Memory.UOP),
            "loads several rows of micro-ops",
        ),
    )
    rows, alu = _columns(config, words, Alu)
    shift = (alu["alu_op"] == AluOp.SHR) & (alu["use_imm"] == 1)
    right, left = capabilities.max_right_shift, capabilities.max_left_shift
    _refuse(
        rows,
        (not capabilities.multiply, alu["alu_op"] == AluOp.MUL, "multiplies in the ALU"),
        (True, shift & (alu["imm"] > right), f"shifts right by more than {right}"),
        (True, shift & (alu["imm"] < -left), f"shifts left by more than {left}"),
    )


def _columns(
    config: HardwareConfig, words: npt.NDArray[np.uint64], cls: type[Instruction]
) -> tuple[npt.NDArray[np.intp], dict[str, npt.NDArray[np.int64]]]:
    opcodes = words[:, 0] & np.uint64((1 << OPCODE_BITS) - 1)
    rows = np.flatnonzero(opcodes == np.uint64(cls.opcode))
    return rows, Encoding.of(config).columns(words[rows], cls)


def _refuse(rows: npt.NDArray[np.intp], *rules: tuple[bool, npt.NDArray[np.bool_], str]) -> None:
    for active, broken, what in rules:
        if active and broken.any():
            raise UnsupportedError(
                f"instruction {rows[int(broken.argmax())]} {what}, which this hardware does not "
                f"support; run the program on a simulator or on a bitstream of our RTL"
            )
